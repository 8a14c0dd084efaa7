#include <exception>
#include <thread>
#include <utility>

#include "tegula/base/log.h"
#include "tegula/base/sentence.h"
#include "tegula/comm/lane.h"
#include "tegula/io/checkpoint.h"
#include "tegula/io/save_job.h"

namespace tegula {

using namespace inner;

void save(const std::string& folder, const State& state, const SaveOptions& options) {
  SaveJob job(folder, state, options);
  ReusedMemory none;
  job.take_tensors(0, none);
  job.finish();
}

struct AsyncSaver::Work {
  ReusedMemory copies;
  std::unique_ptr<SaveJob> job;
  std::exception_ptr error;
  std::thread thread;
};

AsyncSaver::AsyncSaver(std::uint64_t most_copied)
    : most_copied_(most_copied), work_(std::make_unique<Work>()) {}

AsyncSaver::~AsyncSaver() {
  try {
    wait();
  } catch (...) {
    log_line(LogLevel::Error,
             "tegula: a checkpoint was not saved: " + sentence_of(std::current_exception()));
  }
}

void AsyncSaver::save(const std::string& folder, const State& state, const SaveOptions& options) {
  wait();
  auto job = std::make_unique<SaveJob>(folder, state, options);
  work_->copies.reuse();
  job->take_tensors(most_copied_, work_->copies);
  work_->job = std::move(job);
  work_->thread = std::thread([work = work_.get()] {
    try {
      const Lane lane("checkpoint");
      work->job->finish();
    } catch (...) {
      work->error = std::current_exception();
    }
    work->job.reset();
  });
}

void AsyncSaver::wait() {
  if (work_->thread.joinable()) work_->thread.join();
  if (const std::exception_ptr error = std::exchange(work_->error, nullptr)) {
    std::rethrow_exception(error);
  }
}

}  // namespace tegula
