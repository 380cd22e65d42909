package protect

import (
	"errors"
	"fmt"
	"path"
	"regexp"

	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

// disarmState takes from a git directory what git, or a prompt of git's, obeys there without being asked to go on with
// anything. moved: what lies in it counts as new. What a stopped rebase or merge needs else stays.
func (w *Watcher) disarmState(l listing, moved bool) {
	dir := l.dir
	// git commit, merge and rebase write what rr-cache holds into each file that MERGE_RR names, .git/config and such above the
	// worktree too. An empty one is what git leaves of it.
	rel := path.Join(dir, "MERGE_RR")
	if st, err := w.newState(rel, moved); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > 0) {
		w.takeState(rel, "a git directory had a record of conflicts, which git's next commit would write into the files that it names: it was moved to the quarantine",
			"nothing is lost by it but that git rerere learns no resolution of this one conflict")
	}
	// git commit and merge apply the stash that MERGE_AUTOSTASH names, whether a merge is in progress or not, and with it
	// bring files of protected names.
	rel = path.Join(dir, "MERGE_AUTOSTASH")
	if _, err := w.newState(rel, moved); err == nil {
		w.takeState(rel, "a git directory named a stash, which git's next commit would have applied: it was moved to the quarantine",
			"if a merge with --autostash was in progress there, its file names the commit of your changes: look at it with git show, then git stash apply COMMIT")
	}
	for _, state := range []string{"rebase-merge", "rebase-apply"} {
		w.disarmSteps(path.Join(dir, state), moved)
	}
	w.disarmIndexes(l, moved)
}

// A count as git writes it.
var count = regexp.MustCompile(`^[0-9]{0,20}\n?$`)

// disarmSteps takes the numbers of a rebase that are none: git-prompt.sh has a shell expand them.
func (w *Watcher) disarmSteps(dir string, moved bool) {
	const detail = "a git directory had a number of a rebase's steps that is none, which a prompt would have run: it was moved to the quarantine"
	const hint = "if a rebase is in progress there, git rebase --abort ends it"
	st, err := w.lstat(dir)
	if err != nil {
		w.notThere(dir, err, doorGit)
		return
	}
	if moved = moved || w.isNew(st); kindOf(st.Mode) != Dir {
		if moved {
			w.takeState(dir, detail, hint)
		}
		return
	}
	for _, name := range []string{"msgnum", "end", "next", "last"} {
		rel := path.Join(dir, name)
		if _, err := w.newState(rel, moved); err != nil {
			continue
		}
		if text, err := w.readFile(rel, 64); err != nil || !count.Match(text) {
			w.takeState(rel, detail, hint)
		}
	}
}

var (
	errOld    = errors.New("older than the session")
	errFolder = errors.New("a folder, such as a submodule that is called so: git reads none there")
)

// newState is lstat of a file that came or was changed in the session.
func (w *Watcher) newState(rel string, moved bool) (unix.Stat_t, error) {
	st, err := w.lstat(rel)
	switch {
	case err != nil:
		w.notThere(rel, err, doorGit)
	case !moved && !w.isNew(st):
		err = errOld
	case kindOf(st.Mode) == Dir:
		err = errFolder
	}
	return st, err
}

// takeState is take for what git keeps in a git directory between commands. hint is for the person who misses it.
func (w *Watcher) takeState(rel, detail, hint string) bool {
	label, err := w.removeAnyhow(rel)
	ev := event.Event{Type: event.FileQuarantined, Door: doorGit, Layer: Layer, Target: w.target(rel), Detail: detail,
		Data: map[string]any{"kept": label}, Hint: &event.Hint{Person: hint}}
	gone := err == nil || errors.Is(err, errNotKept)
	if gone {
		w.taken++
	} else {
		w.failed++
		ev.Type, ev.Hint = event.LayerOpen, &event.Hint{Person: "do not use git here before you removed it"}
		ev.Detail = fmt.Sprintf("a git directory can write or start what a session chose, and could not be changed: %v", err)
	}
	w.report(ev, "state "+rel)
	return gone
}
