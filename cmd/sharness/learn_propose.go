package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sharness/sharness/agent/learn"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
)

// finish folds what was seen, writes the proposal and says what it is. The agent may have written to standard output:
// all of this goes to the other one.
func (l *learning) finish(seen *learn.Observation, status int) error {
	p, err := learn.Propose(learn.Input{Seen: seen, Facts: l.facts(seen), Start: l.start, Former: l.former, Merge: l.merge, Prune: l.prune, Accept: l.accept,
		Attempts: l.attempts(seen), Peaks: l.peaks(), Reached: l.reached(), Network: l.network})
	if err != nil {
		return &exitError{125, fmt.Errorf("learn: %w", err)}
	}
	header := p.Manifest.Learned
	header.At, header.Kernel, header.Sharness = l.began.UTC().Truncate(time.Second), kernelRelease(), version
	data, err := l.text(p)
	if err != nil {
		return &exitError{125, fmt.Errorf("learn: %w", err)}
	}
	proposed := l.file + proposedSuffix
	if err := replaceFile(proposed, data); err != nil {
		return &exitError{125, err}
	}
	if err := l.tell(p, seen, proposed); err != nil {
		return &exitError{125, err}
	}
	if len(p.Missing) > 0 {
		return &exitError{125, fmt.Errorf("the record is not whole, and enforce would refuse the proposal: %s", strings.Join(p.Missing, "; "))}
	}
	if l.yes {
		if err := approve(os.Stderr, l.file); err != nil {
			return err
		}
	} else if len(p.Refused) > 0 {
		return refuse("%s left out of the proposal; approve it without: sudo sharness manifest approve -m %s",
			count(len(p.Refused), "file was", "files were"), pin.Quote(l.file))
	}
	if status != 0 {
		return &exitError{code: status}
	}
	return nil
}

// text is the proposal as a document: the manifest in force, or the profile, with its comments, and how each line was seen.
func (l *learning) text(p *learn.Proposal) ([]byte, error) {
	d, err := l.document, error(nil)
	if d == nil {
		d, err = l.fragment.Document(l.file, p.Manifest)
	} else {
		err = d.Set(p.Manifest)
	}
	if err != nil {
		return nil, err
	}
	data := learn.Annotate(d.Bytes(), p.Notes, p.Manifest.Route, p.Asked)
	again, err := manifest.Parse(l.file, data)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(manifest.Format(again), manifest.Format(p.Manifest)) {
		return nil, errors.New("the remarks changed what the manifest says")
	}
	return data, nil
}

// tell prints the summary.
func (l *learning) tell(p *learn.Proposal, seen *learn.Observation, proposed string) error {
	out := os.Stderr
	if undisturbed() {
		fmt.Fprint(out, "\r\x1b[K") // where the progress was
	}
	if err := p.Table(out); err != nil {
		return err
	}
	for _, w := range append(l.closure.Warnings, l.warnings...) {
		fmt.Fprintf(out, "warning: %s\n", event.Escape(w))
	}
	for _, r := range p.Refused {
		fmt.Fprintf(out, "left out: %s: %s\n", event.Escape(r.Path), event.Escape(r.Reason))
		if r.Acceptable {
			fmt.Fprintf(out, "  to pin it all the same, learn again with --accept %s\n", event.Escape(pin.Quote(r.Path)))
		}
	}
	for _, a := range p.Asked {
		fmt.Fprintln(out, event.Escape(a))
	}
	if beside := l.besideServer(p.Manifest); len(beside) > 0 {
		fmt.Fprintf(out, "new under exec, where they run with the agent's own reach: %s; what only does the model's work belongs into a sandbox: write it under route instead\n",
			event.Escape(strings.Join(beside, ", ")))
	}
	if len(p.Manifest.Route) == 0 {
		fmt.Fprintln(out, "no route: it started no shell, git or interpreter but its own in this run; one that it starts later by its path is refused, until it is learned or allowed with --route")
	}
	if seen.Unseen > 0 {
		fmt.Fprintf(out, "%d times memory was made executable while another thread was mapping: as a rule by a compiler in the process; if it was a library, enforce will deny it and say so\n", seen.Unseen)
	}
	if seen.Unkept > 0 {
		fmt.Fprintf(out, "asked for: %d more files and endpoints, which are not listed\n", seen.Unkept)
	}
	text := "no run has used it; it stays (leave it out with --prune)"
	if !l.merge {
		text = "this run did not use it; it goes (keep it with --merge)"
	} else if l.prune {
		text = "no run has used it; it goes"
	}
	for _, path := range p.Unused[:folded(len(p.Unused))] {
		fmt.Fprintf(out, "unused: %s: %s\n", event.Escape(path), text)
	}
	if more := len(p.Unused) - folded(len(p.Unused)); more > 0 {
		fmt.Fprintf(out, "unused: %d more: the same\n", more)
	}
	if l.former == nil {
		fmt.Fprintf(out, "wrote %s: %s, %s, %s\n", proposed, count(len(p.Manifest.Exec), "program", "programs"),
			count(len(p.Manifest.Libraries), "library", "libraries"), count(len(p.Manifest.Route), "route", "routes"))
	} else {
		changes := manifest.Diff(l.former, p.Manifest)
		if !l.yes || len(p.Missing) > 0 { // else approving says it
			showChanges(out, changes, "sharness manifest diff "+pin.Quote(l.file)+" "+pin.Quote(proposed))
		}
		fmt.Fprintf(out, "wrote %s: %s to %s\n", proposed, count(len(changes), "change", "changes"), l.file)
	}
	if !l.yes && len(p.Missing) == 0 {
		fmt.Fprintf(out, "next: read it, then: sudo sharness manifest approve -m %s\n", manifestArg(l.file))
	}
	return nil
}

// fewChanges is how many of one kind are shown line by line where there are more than twice as many.
const fewChanges = 3

// besideServer are programs that this run adds to what the agent itself may start: the first of them, and how many more.
func (l *learning) besideServer(m *manifest.Manifest) []string {
	var out []string
	for _, e := range m.Exec {
		known := func(x manifest.Exec) bool { return x.Path == e.Path }
		if e.Role == manifest.RoleProgram && !slices.ContainsFunc(l.closure.Exec, known) && (l.former == nil || !slices.ContainsFunc(l.former.Exec, known)) {
			out = append(out, e.Path)
		}
	}
	if n := folded(len(out)); n < len(out) {
		out = append(out[:n], fmt.Sprintf("%d more", len(out)-n))
	}
	return out
}

func folded(n int) int {
	if n > 2*fewChanges {
		return fewChanges
	}
	return n
}

// showChanges prints changes, of many of one kind the first few; all is the command that shows the rest.
func showChanges(out io.Writer, changes []manifest.Change, all string) {
	kind := func(c manifest.Change) string {
		key, _, _ := strings.Cut(c.Key, "[")
		return string(c.Kind) + " " + key
	}
	sum, shown := map[string]int{}, map[string]int{}
	for _, c := range changes {
		sum[kind(c)]++
	}
	for _, c := range changes {
		k := kind(c)
		switch shown[k]++; {
		case shown[k] <= folded(sum[k]):
			fmt.Fprintln(out, c)
		case shown[k] == sum[k]:
			fmt.Fprintf(out, "%.1s %s: %d more; all of them: %s\n", c, strings.TrimPrefix(k, string(c.Kind)+" "), sum[k]-folded(sum[k]), all)
		}
	}
}
