package protect

// name is a path at the root of the workspace that a program of the user reads as instructions, not as text.
type name struct {
	path string
	why  string
}

// rootNames are protected at the root of the workspace, and there only: what a nested package brings along is the
// project's own code. A name that exists is read-only; one that does not is watched and taken away.
//
// The test for a new row: does something execute or obey it although the user only opened, entered or listed the folder?
// Build files (Makefile, package.json) are not here: running them is asking for the project's code.
var rootNames = []name{
	{".gitmodules", "git: the urls and update commands of submodules"},
	{".husky", "husky: hooks, also through a core.hooksPath of the user's own configuration"},
	{".githooks", "git: the usual name in a core.hooksPath of the user's own configuration"},

	{".hg/hgrc", "Mercurial: hooks, aliases and extensions, which are programs"},
	{".hg/hgrc-not-shared", "Mercurial: the same"},
	{".hg/sharedpath", "Mercurial: another repository to take hgrc from"},
	{".jj/repo/config.toml", "Jujutsu: tools and aliases, which are programs; the rest of .jj is its store, which a session may write"},
	{".jj/workspace-config.toml", "Jujutsu: the same"},

	{".vscode", "VS Code and its forks: tasks that run when the folder opens, paths of tools, MCP servers"},
	{".idea", "JetBrains IDEs: run configurations, startup tasks, paths of interpreters"},
	{".zed", "Zed: tasks, paths of language servers"},
	{".helix", "Helix: language servers and formatters, which are programs"},
	{".vim", "vim-lsp, coc.nvim: settings that name programs"},
	{".nvim.lua", "neovim with exrc: executed in the folder"},
	{".nvimrc", "neovim with exrc: executed in the folder"},
	{".exrc", "vi, vim, neovim with exrc: executed in the folder"},
	{".vimrc", "vim with exrc: executed in the folder"},
	{".dir-locals.el", "emacs: evaluated when a file of the folder is opened"},
	{".dir-locals-2.el", "emacs: the same, read beside the first"},
	{".devcontainer", "dev containers: initializeCommand runs on the host"},
	{".devcontainer.json", "dev containers: initializeCommand runs on the host"},

	{".envrc", "direnv: executed on cd"},
	{".mise.toml", "mise: environment, hooks and tasks on cd"},
	{"mise.toml", "mise: environment, hooks and tasks on cd"},
	{".mise", "mise: the same in a folder"},
	{"mise.local.toml", "mise: the same"},
	{".mise.local.toml", "mise: the same"},
	{"mise/config.toml", "mise: the same"},
	{"mise/config.local.toml", "mise: the same"},
	{".config/mise", "mise: the same in a folder"},
	{".config/mise.toml", "mise: the same"},
	{".config/mise.local.toml", "mise: the same"},
	{".tool-versions", "asdf, mise: which program a name on PATH starts"},
	{".cargo/config.toml", "cargo: wrappers and runners, started by rust-analyzer when the folder opens"},
	{".cargo/config", "cargo: the same, its older name"},
	{"rust-toolchain.toml", "rustup: which program the name cargo starts, also by a path"},
	{"rust-toolchain", "rustup: the same, its older name"},
	{".gdbinit", "gdb with auto-load: executed at start"},
	{".lldbinit", "lldb: executed at start"},

	{".mcp.json", "Claude Code: MCP servers, which are programs"},
	{".claude/settings.json", "Claude Code: hooks and permissions (CVE-2026-25725)"},
	{".claude/settings.local.json", "Claude Code: hooks and permissions (CVE-2026-25725)"},
	{".claude/hooks", "Claude Code: scripts that hooks name"},
	{".claude/commands", "Claude Code: commands, which may run a shell"},
	{".claude/agents", "Claude Code: agents with tools and hooks of their own"},
	{".claude/skills", "Claude Code: skills, which carry scripts"},
	{".cursor", "Cursor: hooks, MCP servers, rules"},
	{".codex", "codex: configuration, MCP servers"},
	{".gemini", "gemini-cli: settings, MCP servers, a sandbox profile of the project"},
	{"opencode.json", "opencode: MCP servers, plugins, permissions"},
	{"opencode.jsonc", "opencode: MCP servers, plugins, permissions"},
	{".opencode", "opencode: plugins and tools, executed at start"},
	{".kiro", "Kiro: hooks, MCP servers, steering"},
	{".windsurf", "Windsurf: hooks, workflows"},
	{".continue", "Continue: MCP servers"},
	{".aider.conf.yml", "aider: lint and test commands"},

	{".bashrc", "bash: executed by every shell, where the workspace is a home"},
	{".bash_profile", "bash: executed at login"},
	{".bash_login", "bash: executed at login"},
	{".bash_logout", "bash: executed at logout"},
	{".profile", "sh: executed at login"},
	{".zshrc", "zsh: executed by every shell"},
	{".zshenv", "zsh: executed by every zsh"},
	{".zprofile", "zsh: executed at login"},
	{".zlogin", "zsh: executed at login"},
	{".zlogout", "zsh: executed at logout"},
	{".inputrc", "readline: keys bound to commands"},
	{".gitconfig", "git: the user's configuration, where the workspace is a home"},
	{".ssh", "ssh: keys, ProxyCommand, where the workspace is a home"},
	{".config/fish", "fish: executed by every shell, where the workspace is a home"},
	{".config/git", "git: the user's configuration, where the workspace is a home"},
	{".config/autostart", "desktop: programs started at login, where the workspace is a home"},
	{".config/systemd", "systemd: the user's units, where the workspace is a home"},
}

// jjRepo is a folder in a repository of Jujutsu's, and a file in one of its workspaces.
const jjRepo = ".jj/repo"

// gitDirNames are protected in the directory of a repository, of a submodule (modules/*) and of a linked worktree
// (worktrees/*). commondir and config.worktree count even where git did not make them: commondir moves the whole
// configuration elsewhere without touching config.
var gitDirNames = []name{
	{"config", "core.fsmonitor, core.sshCommand, core.hooksPath, filters: programs that git starts"},
	{"config.worktree", "the same, with extensions.worktreeConfig"},
	{"commondir", "another directory to take config and hooks from"},
	{"hooks", "programs that git starts"},
}

// worktreeName is protected besides in a directory that lies where those of linked worktrees do. It makes no difference that
// such a one has no config and hooks: with commondir gone, or never there, git reads them.
var worktreeName = name{"gitdir", "where the worktree's .git file lies"}
