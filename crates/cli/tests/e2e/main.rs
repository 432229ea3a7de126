//! End to end: the built `legwork`, real processes, a real MCP client.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

mod approvals;
mod audit;
mod bad_input;
mod common;
mod completions;
mod crash;
mod disk;
mod exec_command;
mod farewell;
mod faults;
mod ledger;
mod limits;
mod limits_output;
mod load;
mod login;
mod mcp;
mod output;
mod pids;
mod policy;
mod power_cut;
mod process;
mod promptness;
mod python_client;
mod read_only;
mod readme;
mod retention;
mod run_verb;
mod sandbox;
mod secrets;
mod snapshots;
mod stalls;
mod state;
mod state_files;
mod stop;
mod task_input;
mod task_output;
mod task_verbs;
mod tasks;
mod terminal;
mod three_tools;
mod torture;
mod unread;
mod upgrade;
mod waiting;
