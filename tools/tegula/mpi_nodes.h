// MPI over several hosts without a remote shell. Open MPI starts a daemon on every host by way of
// an agent, usually ssh. Here the launchers that the user started on the hosts do that work:
//
//   host 0          tegula run listens at the rendezvous until the launchers of all hosts have
//   come,
//                   then starts mpirun with `tegula mpi-agent <name>` as its agent
//   mpirun          calls the agent with a host and the command that starts the daemon there
//   the agent       hands both to the launcher of host 0, which passes the command on
//   other hosts     tegula run connects to the rendezvous and runs the commands that come
//
// A launcher runs commands only from the rendezvous that its user named, and only those that start
// Open MPI's daemon.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace tegula::cli {

// Host 0's side: lives as long as the job.
class Switchboard {
 public:
  // Waits until all other hosts have come. UsageError if the address cannot be listened at;
  // CommError that names the absent hosts after the timeout.
  Switchboard(const std::string& rendezvous, int nodes, std::chrono::seconds timeout);
  ~Switchboard();
  Switchboard(const Switchboard&) = delete;
  Switchboard& operator=(const Switchboard&) = delete;

  // Addresses of all hosts, host 0 first.
  const std::vector<std::string>& hosts() const;
  // What mpirun shall call; it appends the host and the command.
  std::string agent_command() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The agent: hands a command to the launcher of host 0, waits for its end, returns its exit code.
int run_mpi_agent(const std::string& switchboard, const std::string& host,
                  const std::string& command);

// Another host's side: runs what comes until the rendezvous closes. Returns the first exit code
// that is not 0, 128 + n if signal n ended us. CommError if there is no rendezvous before the
// timeout.
int serve_mpi_node(const std::string& rendezvous, int node_rank, std::chrono::seconds timeout);

}  // namespace tegula::cli
