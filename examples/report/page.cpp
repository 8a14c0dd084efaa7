#include "page.h"

#include <algorithm>
#include <cctype>

#include "svg.h"

namespace report {
namespace {

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--page:#f9f9f7;--card:#fff;--ink:#0b0b0b;--soft:#52514e;--faint:#7a7873;--line:#e1e0d9;
--axis:#c3c2b7;--c1:#2a78d6;--c2:#eb6834;--c3:#1baf7a;--c4:#4a3aa7;--c5:#eda100;--c6:#e34948;--c7:#008300;--c8:#e87ba4}
@media(prefers-color-scheme:dark){:root{--page:#0d0d0d;--card:#1a1a19;--ink:#fff;--soft:#c3c2b7;--faint:#98968f;
--line:#2c2c2a;--axis:#45443f;--c1:#3987e5;--c2:#d95926;--c3:#199e70;--c4:#9085e9;--c5:#c98500;--c6:#e66767;
--c7:#2f9e2f;--c8:#d55181}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 20px 48px}
h1{font-size:26px;line-height:1.2;margin:0 0 6px}
h2{font-size:18px;margin:0 0 2px}
h3{font-size:13px;font-weight:600;color:var(--soft);margin:16px 0 6px}
p{margin:0;color:var(--soft);max-width:110ch}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0}
.figures div,section{background:var(--card);border:1px solid var(--line);border-radius:10px}
.figures div{padding:12px 16px}
.figures b{display:block;font-size:24px;font-weight:600;line-height:1.25}
.figures span{color:var(--soft);font-size:13px}
section{padding:18px 20px 20px;margin:12px 0}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 28px}
svg{display:block;width:100%;height:auto}
svg text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--soft)}
svg .tick{fill:var(--faint);font-variant-numeric:tabular-nums}
svg .value{fill:var(--ink);font-variant-numeric:tabular-nums}
svg .on-tint{fill:var(--ink);font-weight:600}
svg .end{text-anchor:end}
svg .middle{text-anchor:middle}
.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}
.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}.c8{--c:var(--c8)}
.fill{fill:var(--c)}
.tint{fill:var(--c);fill-opacity:.2;stroke:var(--c);stroke-width:2}
.grid,.axis{stroke:var(--line)}
.axis{stroke:var(--axis)}
.line,.thin{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.thin{stroke-width:1;opacity:.28}
.line.broad{stroke-width:6;opacity:.45}
.line.dashed{stroke-dasharray:6 4;stroke-linecap:butt}
.outline{fill:none;stroke:var(--axis)}
.reading{fill:transparent}
.reading:hover{fill:var(--soft);opacity:.14}
.keys{display:flex;flex-wrap:wrap;gap:4px 18px;margin:2px 0 10px;font-size:13px;color:var(--soft)}
.keys i{display:inline-block;width:12px;height:12px;border-radius:3px;background:var(--c);margin-right:6px;vertical-align:-1px}
.bars{display:grid;grid-template-columns:max-content 1fr max-content;gap:9px 12px;align-items:center;font-size:13px}
.bar{display:flex;gap:2px;height:18px}
.bar i{background:var(--c);border-radius:0 3px 3px 0;min-width:1px}
.bar i:hover{opacity:.85}
.held{display:grid;grid-template-columns:auto 1fr;gap:20px 32px;align-items:start;margin-top:12px}
.grid-of-ranks{width:176px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr));gap:16px 24px}
.card{display:grid;grid-template-columns:108px 1fr;gap:12px;align-items:center;font-size:12.5px;line-height:1.4}
.card svg{margin:auto}
.card b{display:block;font:12px/1.45 ui-monospace,Menlo,monospace;overflow-wrap:anywhere}
.card span{display:block;color:var(--soft)}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;margin-top:10px;width:100%}
th{text-align:left;font-weight:600;color:var(--soft);border-bottom:1px solid var(--axis)}
th,td{padding:5px 14px 5px 0;white-space:nowrap}
td{border-bottom:1px solid var(--line)}
.digits{text-align:right;font-variant-numeric:tabular-nums}
pre{margin:10px 0 0;padding:14px 16px;background:var(--page);border-radius:8px;font:13px/1.5 ui-monospace,Menlo,monospace;
white-space:pre-wrap;overflow-wrap:anywhere}
@media(max-width:640px){.held{grid-template-columns:1fr}}
)";

std::string tag(const std::string& name, const std::string& content) {
  return "<" + name + ">" + content + "</" + name.substr(0, name.find(' ')) + ">\n";
}

std::string titled(const std::string& title) {
  return title.empty() ? "" : tag("h3", escaped(title));
}

std::string to_html(const LineChart& chart) {
  return tag("div", titled(chart.title) + to_svg(chart));
}

double total_of(const Bar& bar) {
  double sum = 0;
  for (const Amount& part : bar.parts) sum += part.value;
  return sum;
}

std::string filled(const BarChart& chart, const Bar& bar, double most) {
  std::string parts;
  for (std::size_t i = 0; i < bar.parts.size(); ++i) {
    const std::string percent = std::to_string(100 * bar.parts[i].value / most);
    const std::string what = bar.name + ", " + chart.parts[i] + ": " + bar.parts[i].text;
    parts += tag(
        "i class=" + color(i) + " style=\"width:" + percent + "%\" title=\"" + escaped(what) + "\"",
        "");
  }
  return tag("div class=bar", parts);
}

std::string to_html(const BarChart& chart) {
  std::string keys, bars;
  for (std::size_t i = 0; i < chart.parts.size() && chart.parts.size() > 1; ++i) {
    keys += tag("span", tag("i class=" + color(i), "") + escaped(chart.parts[i]));
  }
  double most = 1e-9;
  for (const Bar& bar : chart.bars) most = std::max(most, total_of(bar));
  for (const Bar& bar : chart.bars) {
    bars += tag("span", escaped(bar.name)) + filled(chart, bar, most) +
            tag("span class=digits", escaped(bar.total));
  }
  return titled(chart.title) + (keys.empty() ? "" : tag("div class=keys", keys)) +
         tag("div class=bars", bars);
}

// "a.b" may be broken after its dot.
std::string breakable(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '.' ? ".<wbr>" : std::string(1, c);
  return result;
}

std::string to_html(const CutMatrices& all) {
  std::string cards;
  for (const CutMatrix& matrix : all.matrices) {
    std::string lines;
    for (const std::string& name : matrix.names) lines += tag("b", breakable(escaped(name)));
    for (const std::string& note : matrix.notes) lines += tag("span", escaped(note));
    cards += tag("div class=card", to_svg(matrix) + tag("div", lines));
  }
  return tag("div class=held",
             tag("div", titled(all.grid.title) + to_svg(all.grid)) + tag("div class=cards", cards));
}

bool is_of_digits(const Table& table, std::size_t column) {
  return std::all_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
    return !row[column].empty() && std::isdigit(static_cast<unsigned char>(row[column][0])) != 0;
  });
}

std::string to_html(const Table& table) {
  const auto row_of = [&](const std::string& cell, const std::vector<std::string>& texts) {
    std::string cells;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      cells += tag(cell + (is_of_digits(table, i) ? " class=digits" : ""), escaped(texts[i]));
    }
    return tag("tr", cells);
  };
  std::string rows = row_of("th", table.head);
  for (const std::vector<std::string>& row : table.rows) rows += row_of("td", row);
  return tag("div class=wide", tag("table", rows));
}

std::string to_html(const Verbatim& verbatim) { return tag("pre", escaped(verbatim.text)); }

// Neighbouring line charts stand side by side where there is room.
std::string to_html(const Section& section) {
  std::string text = tag("h2", escaped(section.title)) + tag("p", escaped(section.lead));
  std::string pair;
  const auto end_pair = [&] {
    if (!pair.empty()) text += tag("div class=pair", pair);
    pair.clear();
  };
  for (const Content& content : section.contents) {
    const std::string one = std::visit([](const auto& item) { return to_html(item); }, content);
    if (std::holds_alternative<LineChart>(content)) {
      pair += one;
      continue;
    }
    end_pair();
    text += one;
  }
  end_pair();
  return tag("section", text);
}

}  // namespace

std::string to_html(const Page& page) {
  std::string figures;
  for (const Figure& figure : page.figures) {
    figures += tag("div", tag("b", escaped(figure.value)) + tag("span", escaped(figure.caption)));
  }
  std::string body = tag("h1", escaped(page.title)) + tag("p", escaped(page.lead)) +
                     tag("div class=figures", figures);
  for (const Section& section : page.sections) body += to_html(section);
  return "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
         "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n" +
         tag("title", escaped(page.title)) + tag("style", kStyle) + "</head>\n<body>\n" +
         tag("main", body) + "</body>\n</html>\n";
}

}  // namespace report
