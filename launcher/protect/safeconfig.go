package protect

import (
	"regexp"
	"slices"
	"strings"
)

// safeKeys are the keys of a git configuration that start no program, read no other file and name none. "*" stands for a
// subsection. A key that is missing here counts as one that does: git grows new ones. What makes a remote one that promised
// objects (extensions.partialClone, remote.*.promisor) is missing on purpose: git asks it for an object that is not there
// whenever one is read, by git status too, and starts ssh or git-remote-NAME for that.
var safeKeys = map[string][]string{
	"core": {"repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "precomposeunicode", "symlinks",
		"autocrlf", "eol", "safecrlf", "sharedrepository", "sparsecheckout", "sparsecheckoutcone", "quotepath", "longpaths", "abbrev",
		"compression", "untrackedcache", "preloadindex", "commitgraph", "multipackindex", "bigfilethreshold", "protecthfs", "protectntfs"},
	"extensions": {"objectformat", "compatobjectformat", "preciousobjects", "refstorage", "relativeworktrees", "worktreeconfig", "noop"},
	"remote.*":   {"url", "pushurl", "fetch", "push", "mirror", "tagopt", "prune", "prunetags", "skipfetchall", "gh-resolved"},
	"branch.*":   {"remote", "pushremote", "merge", "rebase", "description", "vscode-merge-base", "gh-merge-base"},
	"user":       {"name", "email"}, "author": {"name", "email"}, "committer": {"name", "email"},
	"submodule": {"active", "recurse", "fetchjobs", "propagatebranches"}, "submodule.*": {"url", "active", "branch", "ignore", "shallow", "fetchrecursesubmodules"},
	"init": {"defaultbranch"}, "pull": {"rebase", "ff"}, "push": {"default", "autosetupremote", "followtags"},
	"fetch": {"prune", "prunetags", "parallel", "fsckobjects", "recursesubmodules"}, "merge": {"ff", "conflictstyle"}, "rebase": {"autosquash", "autostash"},
	"gc": {"auto", "autodetach"}, "maintenance": {"auto", "strategy"}, "index": {"version", "threads", "sparse"}, "feature": {"manyfiles"},
	"commit": {"gpgsign"}, "tag": {"gpgsign"}, "rerere": {"enabled", "autoupdate"}, "status": {"showuntrackedfiles"},
	"lfs": {"repositoryformatversion"}, "lfs.*": {"access", "locksverify"},
}

// safeLines are whole settings that start a program which is the user's own: git lfs install --local writes them.
var safeLines = map[string][]string{
	"filter.*": {"clean = git-lfs clean -- %f", "smudge = git-lfs smudge -- %f", "smudge = git-lfs smudge --skip -- %f",
		"process = git-lfs filter-process", "process = git-lfs filter-process --skip", "required = true"},
	"submodule.*": {"update = none", "update = checkout", "update = rebase", "update = merge"},
}

// What git itself writes, one thing on a line. Whatever else git would accept (a key after the bracket, continued lines,
// escapes in a subsection) is not read but dropped, so that git and we cannot read a line differently. No name is long.
var (
	sectionLine = regexp.MustCompile(`^\[([A-Za-z0-9-]{1,64})( "[^"\\\]\[]*")?\]$`)
	keyLine     = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9-]{0,63})[ \t]*(=.*)?$`)
)

// safeConfig returns the lines of a configuration that are safe, and the first that is not ("": none). worktree says whether
// a value of core.worktree is. A header that is not kept has no keys that are: they would come below another.
func safeConfig(text string, worktree func(value string) bool) (safe, found string) {
	var b strings.Builder
	section, sub := "", ""
	for line := range strings.SplitSeq(text, "\n") {
		bare := strings.Trim(line, " \t")
		ok := false
		switch m := sectionLine.FindStringSubmatch(bare); {
		case bare == "", bare[0] == '#', bare[0] == ';':
			ok = !strings.ContainsFunc(bare, control)
		case bare[0] == '[':
			section, sub = "", ""
			if ok = m != nil && !strings.ContainsFunc(bare, control); ok {
				section = strings.ToLower(m[1])
				if m[2] != "" {
					sub = ".*"
				}
				// A remote without a url has its name for one.
				if section == "remote" && !safeURL(strings.Trim(m[2], ` "`)) {
					section, ok = "", false
				}
			}
		default:
			ok = safeLine(section+sub, bare, worktree)
		}
		if ok {
			b.WriteString(line + "\n")
		} else if found == "" {
			name, _, _ := strings.Cut(bare, "=")
			name = section + "." + strings.TrimSpace(name)
			found = name[:min(len(name), 128)]
		}
	}
	return b.String(), found
}

func safeLine(section, line string, worktree func(value string) bool) bool {
	m := keyLine.FindStringSubmatch(line)
	// A backslash joins the next line, or hides a quote.
	if m == nil || strings.Contains(line, `\`) || strings.ContainsFunc(line, control) {
		return false
	}
	key, value := strings.ToLower(m[1]), strings.TrimSpace(strings.TrimPrefix(m[2], "="))
	switch {
	case section == "core" && key == "worktree":
		return !strings.ContainsAny(value, `"#;`) && worktree(value)
	case section == "core" && key == "repositoryformatversion": // of a negative one git thinks that there is none
		return value == "0" || value == "1"
	case section == "core" && key == "sharedrepository": // as git reads it: a number is a mode, and 2 is for everybody
		return slices.Contains([]string{"", "false", "no", "off", "0", "umask", "true", "yes", "on", "1", "group", "0600", "0640", "0660"}, value)
	case strings.HasSuffix(key, "url") || strings.HasSuffix(key, "remote"):
		if !safeURL(value) {
			return false
		}
	}
	return slices.Contains(safeKeys[section], key) || slices.Contains(safeLines[section], line)
}

// urlSchemes are those that git brings along. Git compares them byte by byte.
var urlSchemes = []string{"https", "http", "ssh", "git", "file", "ftp", "ftps", "git+ssh", "ssh+git"}

// safeURL says whether a url starts none but git's own programs: NAME::ADDRESS and NAME://ADDRESS start git-remote-NAME
// (gitremote-helpers(7)). A path and HOST:PATH, and the name of a remote, have neither. A quote may stand between two colons. What
// begins with a dash is an option of the git that git fetch --all, or git submodule, starts.
func safeURL(value string) bool {
	if strings.Contains(value, "::") || strings.Contains(value, `"`) || strings.HasPrefix(value, "-") {
		return false
	}
	scheme, _, ok := strings.Cut(value, "://")
	return !ok || slices.Contains(urlSchemes, scheme)
}

func control(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r == '\ufeff' }
