//! Examples that stand below the help of each verb.

pub(super) const EXIT_CODES: &str = "\
Without a command, legwork shows the running tasks and the open questions.

Exit codes of `run` and `sh`: the command's own; 124 timed out, 125 failure of legwork itself, \
126 denied or not executable, 127 not found, 128+n ended by signal n. `logs -f`, `attach` and \
`wait` end with the task's own exit code, too. Exit codes of `call`: 0 for a result, 126 denied or \
refused, 125 any other error.

Environment: LEGWORK_STATE names the state folder, LEGWORK_LOG=debug logs to stderr, NO_COLOR=1 \
switches colours off.

Examples:
  legwork setup                 plug it into your agents
  legwork run -- cargo test     run a program, recorded
  legwork top                   watch the tasks of your agents
  legwork approvals --watch     answer their questions
  legwork doctor                check this machine and the configuration";

pub(super) const PLACES: &str = "\
A place is configured as `[place.NAME]` (docs/places.md). Commands run there with `--place NAME`, or \
by default with `[place] default`.

Examples:
  legwork places
  legwork places --check
  legwork places build --check --json
  legwork run --place build -- make";

pub(super) const SETUP: &str = "\
Files keep their comments and their order; each is kept as it was in the state folder (setup/). \
`legwork doctor` shows which clients are set up.

Examples:
  legwork setup --print                 what would be changed, for all clients that are found
  legwork setup claude-code codex
  legwork setup claude-code --shell-off
  legwork setup --hooks                 judge what the clients' own shells run, too
  legwork setup --tools all             with execute_command and run_shell_command, too
  legwork setup --remove";

pub(super) const HOOK: &str = "\
Clients call it: `legwork setup --hooks` tells them to. It prints the answer and nothing else, and \
ends with 0. A command that cannot be judged does not run ([hook] on_failure in the configuration).

Examples:
  echo '{\"tool_name\": \"Bash\", \"tool_input\": {\"command\": \"ls\"}, \"cwd\": \"/tmp\"}' \
| legwork hook claude-code";

pub(super) const MCP: &str = "\
Examples:
  legwork mcp
  legwork mcp --workspace ~/project --ask strict
  legwork mcp --tools ExecCommand,TaskOutput,TaskStop";

pub(super) const ACP: &str = "\
The editor starts `legwork acp -- AGENT` in the place of the agent. Commands that the agent runs in \
the editor's terminals are judged, sandboxed and recorded, and questions about them appear in the \
editor.

Examples:
  legwork acp -- gemini --experimental-acp
  legwork acp --ask strict -- my-agent --acp";

pub(super) const SERVE: &str = "\
Every request needs a token, also on this machine: `legwork token add`. Tasks go on when the \
server ends. Other machines reach it with TLS, here or in a proxy (--behind-proxy).

Examples:
  legwork serve
  legwork serve link
  legwork serve --listen 127.0.0.1:0 --workspace ~/project
  legwork serve --listen unix:/run/user/1000/legwork.sock
  legwork serve --listen 0.0.0.0:7117 --tls-cert cert.pem --tls-key key.pem \
--allow-host legwork.example";

pub(super) const SERVE_LINK: &str = "\
The link signs in once, within ten minutes. Without a link, sign in with a token.

Examples:
  legwork serve link
  legwork serve link --state ~/other";

pub(super) const TOKEN_ADD: &str = "\
The token is printed once; only its hash is kept.

Examples:
  legwork token add laptop --role operator
  legwork token add laptop --role operator --save
  legwork token add ci --role agent --workspace ~/project --expires 30d
  legwork token add dashboard --role viewer";

pub(super) const TOKEN_LIST: &str = "\
Examples:
  legwork token list
  legwork token list --json";

pub(super) const TOKEN_REVOKE: &str = "\
It takes effect at once, also for what is connected.

Examples:
  legwork token revoke ci";

pub(super) const CALL: &str = r#"Examples:
  legwork call ExecCommand '{"cmd": "make test"}'
  legwork call TaskList '{}' --json
  echo '{"command": "ls"}' | legwork call execute_command -"#;

pub(super) const RUN: &str = "\
A task that you start is yours: it is never stopped because no client is connected.

Examples:
  legwork run -- cargo test --workspace
  legwork run -d -- npm run dev
  legwork run --timeout 5m --sandbox read-only -- ./check.sh";

pub(super) const SH: &str = "\
A task that you start is yours: it is never stopped because no client is connected.

Examples:
  legwork sh 'make && make test'
  legwork sh -d 'while :; do date; sleep 60; done'
  legwork sh --shell zsh 'print -l **/*.rs'";

pub(super) const TRY: &str = "\
The command runs for real, without a network, and sees what it does; what it writes goes into a \
copy. The workspace, other writable folders and caches stay as they are. Nobody is asked; what a \
rule denies is denied.

Examples:
  legwork try -- npm run build
  legwork try --sh 'rm -rf src && npm run build'
  legwork changes --diff
  legwork apply dist/
  legwork discard";

pub(super) const CHANGES: &str = "\
+ is made, ~ changed, - removed, . touched (mode, owner or time only). What was applied is not \
listed again.

Examples:
  legwork changes
  legwork changes --diff --path src
  legwork changes --list";

pub(super) const APPLY: &str = "\
All that was named is brought over, or nothing is: a file that was changed since the trial began is \
named, and nothing happens. Cut off at any moment, an apply is finished or undone by the next start.

Examples:
  legwork apply
  legwork apply dist/ package.json
  legwork apply --trial t_2f6 src";

pub(super) const DISCARD: &str = "\
Examples:
  legwork discard
  legwork discard --all";

pub(super) const PS: &str = "\
The list fits the terminal: folders are shortened and commands cut in the middle. Into a pipe \
nothing is cut, unless COLUMNS is set. NO CLIENT tells when a task that has lost its client is \
stopped (orphan_ttl_ms).

Examples:
  legwork ps -r                          tasks that are running
  legwork ps --status failed --since 1h  what failed in the last hour
  legwork ps --workspace . -n 100
  legwork stop $(legwork ps -rq)         stop everything";

pub(super) const TOP: &str = "\
Keys: Up and Down select a task, / filters, Enter attaches (Ctrl-] comes back), x stops after \
asking, y s r n answer the question, ? shows all keys, q quits. Tasks go on when you quit. While \
it runs, callers that have to ask wait for your answer.

Examples:
  legwork top
  NO_COLOR=1 legwork top";

pub(super) const SHOW: &str = "\
Examples:
  legwork show @
  legwork show t_4f2k --json";

pub(super) const LOGS: &str = "\
Examples:
  legwork logs                     output of the newest task
  legwork logs -f t_4f2k           follow it to its end
  legwork logs -n 50 --grep error  the last 50 errors
  legwork logs --since 10m";

pub(super) const ATTACH: &str = "\
Examples:
  legwork attach @
  legwork attach t_4f2k";

pub(super) const SEND: &str = "\
Examples:
  legwork send @ yes
  legwork send t_4f2k --key ctrl-c
  legwork send t_4f2k - --eof < answers.txt";

pub(super) const STOP: &str = "\
Examples:
  legwork stop @
  legwork stop t_4f2k t_9c1m --grace 10s
  legwork stop t_4f2k --signal INT";

pub(super) const WAIT: &str = "\
Examples:
  legwork wait @ --timeout 10m
  legwork wait @ --matches 'listening on' --port 8080
  legwork wait @ --silence 5s";

pub(super) const TOOLS: &str = "\
Examples:
  legwork tools
  legwork tools --instructions --tools ExecCommand
  legwork tools --format openai";

pub(super) const APPROVALS: &str = "\
Examples:
  legwork approvals          open questions, one a line
  legwork approvals a_7hx    one of them, in full
  legwork approvals --watch  answer them as they come";

pub(super) const APPROVE: &str = "\
Examples:
  legwork approve a_7hx
  legwork approve a_7hx --rule";

pub(super) const DENY: &str = "\
Examples:
  legwork deny a_7hx --note 'use the Makefile'";

pub(super) const POLICY_CHECK: &str = "\
Examples:
  legwork policy check 'git push origin main'
  legwork policy check --tool run_shell_command 'npm install'
  legwork policy check --trust untrusted_external 'ls'
  legwork policy check --connect pypi.org:443";

pub(super) const POLICY_TEST: &str = "\
Examples:
  legwork policy test cases.toml";

pub(super) const AUDIT_SHOW: &str = "\
Examples:
  legwork audit show -n 20
  legwork audit show --since 1h --verdict deny
  legwork audit show -f";

pub(super) const AUDIT_VERIFY: &str = "\
Examples:
  legwork audit verify";

pub(super) const DOCTOR: &str = "\
Nothing is changed, and no task is left behind.

Examples:
  legwork doctor
  legwork doctor --workspace ~/project --json";

pub(super) const GC: &str = "\
A task that runs is never deleted.

Examples:
  legwork gc --dry-run
  legwork gc --days 30
  legwork gc --bytes-max 2GiB";

pub(super) const COMPLETIONS: &str = "\
Examples:
  source <(legwork completions bash)
  legwork completions zsh > ~/.zfunc/_legwork
  legwork completions fish > ~/.config/fish/completions/legwork.fish";
