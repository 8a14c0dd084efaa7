"""The calls whose communication is compared: data for both sides, of nothing but torch.

A case is a call, its operands, and where these lie. Placements are written one word per operand, one letter
per axis of the mesh: R whole, S0 cut along dim 0, P a sum that is owed. "S0 R" are two operands on one axis,
"S0S1 RR" two operands on two axes.
"""
import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Operand:
    shape: tuple
    below: int = 0  # whole numbers below this one; 0: normal numbers
    definite: bool = False  # positive definite matrices

    def make(self, generator):
        if self.below:
            return torch.randint(self.below, self.shape, generator=generator)
        values = torch.randn(self.shape, generator=generator)
        return values @ values.mT + torch.eye(self.shape[-1]) if self.definite else values


@dataclass(frozen=True)
class Case:
    family: str
    name: str
    call: object  # a function of the operands; returns tensors
    operands: tuple
    placed: str
    to: str = ""  # where the results are brought, if the case says it
    backward: bool = False  # the gradients of (result ** 3).sum(), placed as the operands, are the results
    loss_parallel: bool = False  # PyTorch's switch for this call is on

    @property
    def key(self):
        return f"{self.family}: {self.name}: {self.placed}"

    @property
    def call_name(self):
        return self.name.removesuffix(" backward")

    @property
    def placements(self):
        """Per operand, the letters of its axes: [["S0", "R"], ["R", "S1"]]."""
        return [axes_of(word) for word in self.placed.split()]

    @property
    def axes(self):
        return len(self.placements[0])

    def make_operands(self):
        generator = torch.Generator().manual_seed(len(self.name))
        return [operand.make(generator) for operand in self.operands]


def axes_of(word):
    return re.findall(r"R|P|S\d", word)


def whole_numbers(below, *shape):
    return Operand(shape, below=below)


def as_operand(shape):
    return shape if isinstance(shape, Operand) else Operand(shape)


CASES = []


def calls_of(family):
    def add(name, call, operands, *placed, **options):
        operands = tuple(as_operand(o) for o in operands)
        suffix = " backward" if options.get("backward") else ""
        for words in placed:
            assert len(words.split()) == len(operands), (name, words)
            CASES.append(Case(family, name + suffix, call, operands, words, **options))

    return add


def families():
    return list(dict.fromkeys(case.family for case in CASES))


def cases_named(names):
    """The cases of these families and calls; all if none is named."""
    return [case for case in CASES if not names or {case.family, case.name, case.call_name} & set(names)]


X = (512, 512)

# Pointwise

add = calls_of("pointwise")
add("add", torch.add, [X, X], "S0 S0", "S0 R", "S0 S1", "P P", "P R", "P S0", "S0S1 S0S1", "S0S1 S0R", "S0R RS1",
    "PS0 PS0")
add("add a bias", torch.add, [X, (512,)], "S0 R", "S1 S0", "S1 R", "R S0", "P R", "S0S1 RS0")
add("add a number", lambda x: x + 1, [X], "S0", "P")
add("mul", torch.mul, [X, X], "S0 R", "P R", "P P", "P S0")
add("div by a number", lambda x: x / 3, [X], "P")
add("clone", torch.clone, [X], "P")
add("to float64", lambda x: x.to(torch.float64), [X], "P")
add("gelu", F.gelu, [X], "S0", "P", "S0S1")
add("gelu", F.gelu, [X], "S0", backward=True)
add("clamp", lambda x: x.clamp(-1, 1), [X], "S1", "P")
add("where", lambda c, x, y: torch.where(c > 0, x, y), [X, X, X], "S0 S0 S0", "S0 R R", "R S0 P")
add("add_", lambda x, y: x.add_(y), [X, X], "S0 R", "S0 S1", "R S0", "S0 P")
add("lerp", torch.lerp, [X, X, X], "S0 R R")
add("bernoulli of 0 and 1", lambda x: torch.bernoulli((x > 0).float()), [X], "S0")

# Reductions

add = calls_of("reductions")
add("sum", torch.sum, [X], "S0", "P", "S0S1")
add("sum of dim 0", lambda x: x.sum(0), [X], "S0", "S1", "S0S0", "S0S1", "PS0")
add("sum of dim 0", lambda x: x.sum(0), [X], "S0", "S1", backward=True)
add("mean of dim 0", lambda x: x.mean(0), [X], "S0", "P")
add("prod of dim 0", lambda x: x.prod(0), [X], "S0")
add("amax of dim 0", lambda x: x.amax(0), [X], "S0", "S1", "P")
add("max of dim 0, with indices", lambda x: tuple(x.max(0)), [X], "S0", "S1", "S0S1")
add("argmax", torch.argmax, [X], "S0")
add("argmax of dim 0", lambda x: x.argmax(0), [X], "S0")
add("var", torch.var, [X], "S0")
add("var of dim 0", lambda x: x.var(0), [X], "S0", "S1", "S0S1")
add("var of dim 0", lambda x: x.var(0), [X], "S0", backward=True)
add("std_mean of dim 0", lambda x: torch.std_mean(x, 0), [X], "S0")
add("logsumexp of dim 0", lambda x: x.logsumexp(0), [X], "S0", "S0S1")
add("norm", lambda x: x.norm(), [X], "S0", "P")
add("vector_norm of dim 0", lambda x: torch.linalg.vector_norm(x, dim=0), [X], "S0")
add("any of dim 0", lambda x: (x > 3).any(0), [X], "S0")
add("all", lambda x: (x > -9).all(), [X], "S0")
add("nansum of dim 0", lambda x: x.nansum(0), [X], "S0", "P")
add("count_nonzero", lambda x: torch.count_nonzero(x), [X], "S0")
add("median of dim 0", lambda x: x.median(0).values, [X], "S0", "S1")
add("quantile of dim 0", lambda x: x.quantile(0.3, 0), [X], "S0")
add("equal", torch.equal, [X, X], "S0 S0")
add("allclose", torch.allclose, [X, X], "S0 S0")
add("sum().item()", lambda x: x.sum().item(), [X], "S0")

# Norms

add = calls_of("norms")
LAYER = [X, (512,), (512,)]


def layer_norm(x, weight, bias):
    return F.layer_norm(x, (512,), weight, bias)


add("layer_norm", layer_norm, LAYER, "S0 R R", "S1 R R", "S1 S0 S0", "S0S1 RR RR", "S0S1 RS0 RS0")
add("layer_norm", layer_norm, LAYER, "S0 R R", "S1 R R", "S1 S0 S0", backward=True)
add("layer_norm of both dims", lambda x: F.layer_norm(x, X), [X], "S0")
add("rms_norm", lambda x, w: F.rms_norm(x, (512,), w), [X, (512,)], "S0 R", "S1 R", "S1 S0")
add("normalize", lambda x: F.normalize(x, dim=1), [X], "S0", "S1")
add("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), [X, (512, 1)], "S0 S0", "S1 R")
add("renorm", lambda x: torch.renorm(x, 2, 0, 1.0), [X], "S0", "S1")

# Softmax and losses

add = calls_of("softmax and losses")
LOGITS, TARGETS = (512, 1024), whole_numbers(1024, 512)


def weighted(logits, targets, weight):
    return F.cross_entropy(8 * logits, targets, weight.abs(), ignore_index=7)


add("softmax of dim 1", lambda x: x.softmax(1), [X], "S0", "S1", "P", "S0S1")
add("softmax of dim 1", lambda x: x.softmax(1), [X], "S0", "S1", backward=True)
add("log_softmax of dim 1", lambda x: x.log_softmax(1), [X], "S1")
add("cross_entropy", F.cross_entropy, [LOGITS, TARGETS], "S0 S0", "S0 R", "S1 R", "S0S1 S0R")
add("cross_entropy", F.cross_entropy, [LOGITS, TARGETS], "S0 S0", "S1 R", "S0S1 S0R", backward=True)
add("cross_entropy in loss_parallel", F.cross_entropy, [LOGITS, TARGETS], "S1 R", loss_parallel=True)
add("cross_entropy in loss_parallel", F.cross_entropy, [LOGITS, TARGETS], "S1 R", loss_parallel=True, backward=True)
add("cross_entropy with weights", weighted, [LOGITS, whole_numbers(12, 512), (1024,)], "S0 S0 R", "S1 R R")
add("mse_loss", F.mse_loss, [X, X], "S0 S0", "S0 R", "S0 S1")
add("mse_loss", F.mse_loss, [X, X], "S0 S0", backward=True)
add("smooth_l1_loss", F.smooth_l1_loss, [X, X], "S0 S0")
add("bce_with_logits", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), [X, X], "S0 S0", "S1 R")
add("kl_div", lambda x, y: F.kl_div(x, y, reduction="batchmean", log_target=True), [X, X], "S0 S0", "S1 S1")
add("cosine_similarity", F.cosine_similarity, [X, X], "S0 S0", "S1 S1")
add("nll_loss", lambda x, t: F.nll_loss(x, t), [LOGITS, TARGETS], "S0 S0", "S1 R")

# Products

add = calls_of("products")
W, B = (768, 512), (768,)
BATCH = (8, 128, 512)

add("mm", torch.mm, [X, (512, 768)], "S0 R", "R S1", "S1 S0", "S0 S1", "S1 R", "R S0", "S0 S0", "S1 S1", "P R", "R P",
    "P S1", "S0R RS1", "S0S1 RS0", "RS0 RS1")
add("addmm", torch.addmm, [(768,), X, (512, 768)], "R S0 R", "S0 R S1", "R S1 S0")
add("linear", F.linear, [X, W, B], "S0 R R", "R S0 S0", "S1 S1 R", "S0 S0 S0", "S0 S1 R", "S0R RS0 RS0", "S0S1 RS1 RR")
add("linear", F.linear, [X, W, B], "S0 R R", "R S0 S0", "S1 S1 R", "S0 S0 S0", "S0R RS0 RS0", "S0S1 RS1 RR",
    backward=True)
add("linear of [8, 128, 512]", F.linear, [BATCH, W, B], "S0 R R", "S1 R R", "S1 S0 S0", "S2 S1 R", "S0S1 RR RR",
    "S0S2 RS1 RR", "S0R RS0 RS0")
add("linear of [8, 128, 512]", F.linear, [BATCH, W, B], "S0 R R", "S1 R R", "S0S1 RR RR", backward=True)
add("bmm", torch.bmm, [(8, 128, 256), (8, 256, 128)], "S0 S0", "S1 R", "S2 S1", "S0 R", "S0S1 S0R", "S0S2 S0S1")
add("matmul of a row", torch.matmul, [(512,), X], "S0 S0", "R S1", "S0 R")
add("mv", torch.mv, [X, (512,)], "S0 R", "S1 S0", "S1 R")
add("dot", torch.dot, [(4096,), (4096,)], "S0 S0", "S0 R")
add("outer", torch.outer, [(512,), (512,)], "S0 R", "S0 S0")
add("einsum bij,bkj->bik", lambda x, y: torch.einsum("bij,bkj->bik", x, y), [(8, 128, 256), (8, 64, 256)], "S0 S0",
    "S2 S2", "S1 R")
add("cdist", torch.cdist, [(256, 64), (256, 64)], "S0 R", "S0 S0")
add("up, gelu, down", lambda x, u, d: F.linear(F.gelu(F.linear(x, u)), d), [X, (2048, 512), (512, 2048)], "R S0 S1",
    "S0R RS0 RS1")
add("up, gelu, down", lambda x, u, d: F.linear(F.gelu(F.linear(x, u)), d), [X, (2048, 512), (512, 2048)], "R S0 S1",
    backward=True)

# Views and joins

add = calls_of("views and joins")


def write_rows(x):
    x[:256].fill_(1)
    return x


def write_row(x):
    x[1] = 0
    return x


add("view(-1, 512)", lambda x: x.view(-1, 512) + 0, [BATCH], "S0", "S1", "S2", "S0S1")
add("view heads", lambda x: x.view(8, 128, 8, 64) + 0, [BATCH], "S2", "S0S2")
add("view 1 head of 512", lambda x: x.view(8, 128, 1, 512) + 0, [BATCH], "S2")
add("flatten", lambda x: x.flatten() + 0, [X], "S0", "S1")
add("transpose", lambda x: x.t().contiguous(), [X], "S0", "P")
add("expand", lambda x: x.expand(4, 512, 512) + 0, [X], "S0")
add("chunk(3, -1)", lambda x: [c + 0 for c in x.chunk(3, -1)], [(512, 1536)], "S1", "S0")
add("split dim 0", lambda x: [c + 0 for c in x.split(128)], [X], "S0", "S1")
add("unbind dim 0", lambda x: [c + 0 for c in x.unbind()], [(4, 512, 512)], "S0", "S1")
add("x[:256]", lambda x: x[:256] + 0, [X], "S0", "S1")
add("x[::2]", lambda x: x[::2] + 0, [X], "S0")
add("x[1]", lambda x: x[1] + 0, [X], "S0", "S1")
add("x[:256].fill_(1)", write_rows, [X], "S0")
add("x[1] = 0", write_row, [X], "S0")
add("cat dim 0", lambda x, y: torch.cat([x, y]), [X, X], "S0 S0", "S1 S1", "S0 R", "S0 S1", "P P")
add("cat dim 0", lambda x, y: torch.cat([x, y]), [X, X], "S0 S0", backward=True)
add("stack dim 0", lambda x, y: torch.stack([x, y]), [X, X], "S0 S0", "S0 R")
add("flip dim 0", lambda x: x.flip(0), [X], "S0", "S1")
add("roll dim 0 by 8", lambda x: x.roll(8, 0), [X], "S0", "S1")
add("pad dim 0 by 2", lambda x: F.pad(x, (0, 0, 2, 2)), [X], "S0", "S1")
add("reflection pad by 2", lambda x: F.pad(x, (0, 0, 2, 2), mode="reflect"), [(1, 512, 512)], "S1", "S2")
add("diff dim 0", lambda x: x.diff(dim=0), [X], "S0", "S1")
add("unfold dim 0", lambda x: x.unfold(0, 4, 4) + 0, [X], "S0")
add("repeat(2, 1)", lambda x: x.repeat(2, 1), [X], "S0", "S1")
add("repeat_interleave dim 0", lambda x: x.repeat_interleave(2, 0), [X], "S0")
add("tril", torch.tril, [X], "S0", "P")
add("diagonal", lambda x: x.diagonal() + 0, [X], "S0")
add("rot90", torch.rot90, [X], "S0")

# Redistributions

add = calls_of("redistributions")


def to(after, *before):
    for placed in before:
        add(f"to {after}", lambda x: x, [X], placed, to=after)


to("R", "S0", "P")
to("S0", "S1", "P", "R")
to("RS0", "S0S0", "PS0")
to("S1S0", "S0S1")
to("S0S1", "S0R", "PS1", "PP")
to("RR", "S0S1", "S0S0", "PP", "PS0")
to("S0S0", "RS0", "PS0", "S1S0")

# Indexing and embedding

add = calls_of("indexing and embedding")
TABLE, IDS = (2048, 256), whole_numbers(2048, 512)
ROWS = whole_numbers(512, 128)


def embedding(table, ids):
    return F.embedding(ids, table)


def written(x, rows, values):
    return x.index_put((rows,), values)


add("embedding", embedding, [TABLE, IDS], "S0 R", "S1 R", "R S0", "S0 S0", "S1 S0", "S0R RS0")
add("embedding", embedding, [TABLE, IDS], "S0 R", "S1 R", "R S0", backward=True)
add("embedding_bag", lambda t, i: F.embedding_bag(i, t, mode="sum"), [TABLE, whole_numbers(2048, 64, 8)], "S0 R",
    "S1 R", "R S0")
add("index_select dim 0", lambda x, i: x.index_select(0, i), [X, ROWS], "S0 R", "S1 R", "R S0", "S0 S0")
add("index_select dim 0", lambda x, i: x.index_select(0, i), [X, ROWS], "S0 R", backward=True)
add("x[rows]", lambda x, i: x[i], [X, ROWS], "S0 R", "S1 R")
add("gather dim 0", lambda x, i: x.gather(0, i), [X, whole_numbers(512, 64, 512)], "S0 R", "S1 S1", "S0 S0", "S1 R")
add("scatter_add dim 0", lambda x, i, s: x.scatter_add(0, i, s), [X, whole_numbers(512, 64, 512), (64, 512)], "S0 R R",
    "S1 S1 S1", "S0 S0 S0")
add("index_add dim 0", lambda x, i, s: x.index_add(0, i, s), [X, ROWS, (128, 512)], "S0 R R", "S1 R S1", "S0 S0 S0")
add("index_put", written, [X, whole_numbers(512, 1), (1, 512)], "S0 R R", "S1 R S1")
add("take", torch.take, [X, whole_numbers(512 * 512, 4096)], "S0 R", "R S0")
add("masked_fill", lambda x, m: x.masked_fill(m > 0, 0.5), [X, X], "S0 S0", "S0 R")
add("masked_select", lambda x, m: x.masked_select(m > 3), [X, X], "S0 S0")
add("one_hot", lambda i: F.one_hot(i, 512), [ROWS], "S0")
add("bincount", lambda i: i.bincount(minlength=64), [whole_numbers(64, 8192)], "S0")
add("histc", lambda x: torch.histc(x, 64, -3, 3), [X], "S0")
add("searchsorted", lambda x, v: torch.searchsorted(x.cumsum(0).abs(), v), [(8192,), (512,)], "R S0")
add("bucketize", lambda v, b: torch.bucketize(v, b.abs().cumsum(0)), [X, (64,)], "S0 R")

# Convolution and pooling

add = calls_of("convolution and pooling")
IMAGE, KERNEL, BIAS = (8, 16, 64, 64), (32, 16, 3, 3), (32,)


def conv2d(x, w, b):
    return F.conv2d(x, w, b, padding=1)


add("conv2d", conv2d, [IMAGE, KERNEL, BIAS], "S0 R R", "S1 S1 R", "R S0 S0", "S2 R R", "S3 R R", "S0S2 RR RR",
    "S2S3 RR RR", "S0R RS0 RS0")
add("conv2d", conv2d, [IMAGE, KERNEL, BIAS], "S0 R R", "R S0 S0", "S2 R R", "S3 R R", "S2S3 RR RR", backward=True)
add("conv2d stride 2", lambda x, w: F.conv2d(x, w, stride=2, padding=1), [IMAGE, KERNEL], "S0 R", "S2 R")
add("conv2d in groups", lambda x, w: F.conv2d(x, w, padding=1, groups=4), [IMAGE, (32, 4, 3, 3)], "S0 R", "S1 S0",
    "S2 R")
add("conv1d", lambda x, w: F.conv1d(x, w, padding=1), [(8, 16, 4096), (32, 16, 3)], "S0 R", "S2 R")
add("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2), [IMAGE, (16, 8, 2, 2)], "S0 R", "S2 R")
add("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), [IMAGE], "S0", "S1", "S2", "S2S3")
add("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), [IMAGE], "S0", "S2", backward=True)
add("avg_pool2d", lambda x: F.avg_pool2d(x, 2), [IMAGE], "S0", "S2")
add("avg_pool2d", lambda x: F.avg_pool2d(x, 2), [IMAGE], "S0", backward=True)
add("adaptive_avg_pool2d(1)", lambda x: F.adaptive_avg_pool2d(x, 1), [IMAGE], "S0", "S2", "S2S3")
add("interpolate nearest", lambda x: F.interpolate(x, scale_factor=2.0), [IMAGE], "S0", "S2")
add("interpolate bilinear", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), [IMAGE], "S0", "S2")
add("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), [IMAGE], "S0", "S1")

# Batch norm and group norm

add = calls_of("batch and group norm")
CHANNELS = [IMAGE, (16,), (16,)]


def batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True)


def group_norm(x, w, b):
    return F.group_norm(x, 4, w, b)


add("batch_norm", batch_norm, CHANNELS, "S0 R R", "S1 S0 S0", "S2 R R", "S0S2 RR RR")
add("batch_norm", batch_norm, CHANNELS, "S0 R R", "S1 S0 S0", "S2 R R", backward=True)
add("batch_norm, running", lambda x, m, v: F.batch_norm(x, m, v.abs()), CHANNELS, "S0 R R", "S1 S0 S0")
add("group_norm", group_norm, CHANNELS, "S0 R R", "S1 S0 S0", "S2 R R", "S0S2 RR RR")
add("group_norm", group_norm, CHANNELS, "S0 R R", "S2 R R", backward=True)
add("instance_norm", lambda x: F.instance_norm(x), [IMAGE], "S0", "S1", "S2")
add("local_response_norm", lambda x: F.local_response_norm(x, 3), [IMAGE], "S0", "S2")

# Scans, sort, topk

add = calls_of("scans and sorts")
add("cumsum dim 0", lambda x: x.cumsum(0), [X], "S0", "S1", "P", "S0S1")
add("cumsum dim 0", lambda x: x.cumsum(0), [X], "S0", backward=True)
add("cumprod dim 0", lambda x: x.cumprod(0), [X], "S0")
add("cummax dim 0", lambda x: tuple(x.cummax(0)), [X], "S0")
add("logcumsumexp dim 0", lambda x: x.logcumsumexp(0), [X], "S0")
add("sort dim 0", lambda x: tuple(x.sort(0)), [X], "S0", "S1", "S0S1")
add("sort of one dim", lambda x: tuple(x.sort()), [(65536,)], "S0")
add("argsort dim 1", lambda x: x.argsort(1), [X], "S0", "S1")
add("topk dim 0", lambda x: tuple(x.topk(8, 0)), [X], "S0", "S1", "S0S1")
add("topk of one dim", lambda x: tuple(x.topk(8)), [(65536,)], "S0")
add("kthvalue dim 0", lambda x: tuple(x.kthvalue(5, 0)), [X], "S0")
add("mode dim 0", lambda x: x.mode(0).values, [whole_numbers(9, 512, 512)], "S0")
add("unique", lambda x: x.unique(), [whole_numbers(99, 8192)], "S0")

# Fourier transforms and linear algebra

add = calls_of("fft and linalg")
MATRICES = (16, 64, 64)

add("fft dim 0", lambda x: torch.fft.fft(x, dim=0), [X], "S0", "S1")
add("fft of one dim", torch.fft.fft, [(65536,)], "S0")
add("rfft dim 1", lambda x: torch.fft.rfft(x, dim=1), [X], "S0", "S1")
add("fft2", torch.fft.fft2, [MATRICES], "S0", "S1")
add("fftshift dim 0", lambda x: torch.fft.fftshift(x, 0), [X], "S0")
add("cholesky", torch.linalg.cholesky, [Operand(MATRICES, definite=True)], "S0", "S1")
add("inv", torch.linalg.inv, [MATRICES], "S0", "S1")
add("solve", torch.linalg.solve, [MATRICES, (16, 64, 8)], "S0 S0", "R S2")
add("svdvals", torch.linalg.svdvals, [MATRICES], "S0", "S1")
add("qr", lambda x: torch.linalg.qr(x).R, [MATRICES], "S0")
add("eigvalsh", lambda x: torch.linalg.eigvalsh(x + x.mT), [MATRICES], "S0")
add("det", torch.linalg.det, [MATRICES], "S0", "S1")
add("matrix_exp", lambda x: torch.matrix_exp(x / 64), [MATRICES], "S0")
add("trace", torch.trace, [X], "S0")
add("matrix_norm", torch.linalg.matrix_norm, [X], "S0")

# Attention

add = calls_of("attention")
HEADS = [(4, 8, 256, 64)] * 3


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


add("attention", attention, HEADS, "S0 S0 S0", "S1 S1 S1", "S2 R R", "R S2 S2", "S2 S2 S2", "S0S1 S0S1 S0S1",
    "S0S2 S0R S0R")
add("attention", attention, HEADS, "S0 S0 S0", "S1 S1 S1", "S2 R R", "S0S1 S0S1 S0S1", backward=True)
add("causal attention", causal, HEADS, "S0 S0 S0", "S1 S1 S1", "S2 R R", "S2 S2 S2")
add("causal attention", causal, HEADS, "S1 S1 S1", backward=True)

# Optimizers and lists

add = calls_of("optimizers and lists")


def stepped(make):
    def step(parameter, gradient):
        parameter = parameter.detach().requires_grad_()
        parameter.grad = gradient
        optimizer = make([parameter])
        optimizer.step()
        return parameter.detach()

    return step


def clipped(parameter, gradient):
    parameter = parameter.detach().requires_grad_()
    parameter.grad = gradient
    norm = torch.nn.utils.clip_grad_norm_([parameter], 1.0)
    return norm, parameter.grad


add("SGD with momentum", stepped(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)), [X, X], "S0 S0", "R R")
add("AdamW", stepped(lambda p: torch.optim.AdamW(p, lr=0.1, foreach=False)), [X, X], "S0 S0", "S0S1 S0S1")
add("AdamW foreach", stepped(lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True)), [X, X], "S0 S0")
add("AdamW fused", stepped(lambda p: torch.optim.AdamW(p, lr=0.1, fused=True)), [X, X], "S0 S0")
add("Adagrad", stepped(lambda p: torch.optim.Adagrad(p, lr=0.1)), [X, X], "S0 S0")
add("Rprop", stepped(lambda p: torch.optim.Rprop(p, lr=0.1)), [X, X], "S0 S0")
add("Adafactor", stepped(lambda p: torch.optim.Adafactor(p, lr=0.1)), [X, X], "S0 S0", "S1 S1")
add("clip_grad_norm_", clipped, [X, X], "S0 S0", "R R", "S0S1 S0S1")
add("_foreach_add", lambda x, y: torch._foreach_add([x, x], [y, y]), [X, X], "S0 S0", "S0 R", "P P")
add("_foreach_norm", lambda x, y: torch._foreach_norm([x, y]), [X, X], "S0 S1")

# Calls that need a dim which is cut, or move elements along it: the ones that distributed tensors tend to gather for.
ALONG_A_CUT_DIM = {
    "softmax and losses: softmax of dim 1: S1", "softmax and losses: cross_entropy: S1 R",
    "reductions: logsumexp of dim 0: S0", "reductions: var of dim 0: S0", "reductions: norm: S0",
    "norms: layer_norm: S1 R R", "scans and sorts: cumsum dim 0: S0", "scans and sorts: sort dim 0: S0",
    "scans and sorts: sort of one dim: S0", "scans and sorts: topk dim 0: S0",
    "scans and sorts: topk of one dim: S0", "views and joins: x[:256]: S0", "views and joins: x[1]: S0",
    "views and joins: cat dim 0: S0 S0", "views and joins: split dim 0: S0", "views and joins: flip dim 0: S0",
    "views and joins: roll dim 0 by 8: S0", "views and joins: chunk(3, -1): S1", "redistributions: to RS0: S0S0",
    "redistributions: to S1S0: S0S1", "pointwise: clone: P", "pointwise: to float64: P",
    "convolution and pooling: conv2d: S2 R R", "batch and group norm: batch_norm: S0 R R",
}
assert ALONG_A_CUT_DIM <= {case.key for case in CASES}
