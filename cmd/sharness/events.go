package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor"
)

// logDir is where sessions log when nobody says otherwise.
const logDir = "/var/log/sharness"

// followEvery is how often a followed log is looked at. Polling works on every filesystem; a person does not see it.
const followEvery = 200 * time.Millisecond

// eventFilter chooses events and how they are shown.
type eventFilter struct {
	json    bool
	all     bool // the whole log, not its last session
	door    string
	typ     string
	session string // the one to show; empty: any
}

func newEventsCmd() *cobra.Command {
	var show eventFilter
	var follow bool
	cmd := &cobra.Command{
		Use:   "events [LOG]",
		Short: "Read and follow the log of a session",
		Long: `Read and follow the log of a session: one line an event, escaped, so that nothing an agent wrote can drive the
terminal. LOG is a file, the name of a manifest or of a session, and by default the log in ` + logDir + `
that was written last. Logs there belong to root, so reading them takes sudo; one that you named with enforce --events
FILE is yours.

Shown is the session that began last, or the one that was named, or with -f what happens from now on; with --all the
whole log. What sharness refused itself to try its walls at the start is one line then, and with --all each of them.
The number behind the time is what sharness why explains.`,
		Example: "  sudo sharness events\n  sudo sharness events -f --door exec-direct\n  sudo sharness events --type exec.denied --json",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: logNames,
		SilenceUsage:      true,
		SilenceErrors:     true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := show.check(); err != nil {
				return err
			}
			path, session, err := chooseLog(args)
			if err != nil {
				return refuse("events: %w", err)
			}
			show.session = session
			bad, err := showLog(cmd.Context(), path, follow, show, cmd.OutOrStdout())
			if err != nil {
				return &exitError{125, fmt.Errorf("events: %w", err)}
			}
			if bad > 0 {
				return &exitError{1, fmt.Errorf("events: %s: lines that are no events of schema %d: %d", path, event.Schema, bad)}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for what happens from now on, through rotation too")
	cmd.Flags().BoolVar(&show.all, "all", false, "the whole log, not the last session, and each refusal of the self-probe")
	cmd.Flags().BoolVar(&show.json, "json", false, "print the JSON lines")
	cmd.Flags().StringVar(&show.door, "door", "", "only events of this side `DOOR`")
	cmd.Flags().StringVar(&show.typ, "type", "", "only events of this `TYPE`")
	completeWords(cmd, "door", doorIDs)
	completeWords(cmd, "type", eventTypes)
	return cmd
}

func (f eventFilter) check() error {
	if _, ok := sidedoor.ByID(f.door); f.door != "" && !ok {
		return refuse("events: --door %s: no such door; the nearest are: %s; sharness doctor lists all", f.door, strings.Join(closest(f.door, doorIDs()), ", "))
	}
	if f.typ != "" && !event.Type(f.typ).Known() {
		return refuse("events: --type %s: no such type; they are: %s", f.typ, strings.Join(eventTypes(), " "))
	}
	return nil
}

// chooseLog finds the log that was named, and the session when it was one of those. What cannot be read is refused here, with
// what to do.
func chooseLog(args []string) (path, session string, err error) {
	path, session, err = findLog(args)
	if err != nil {
		return "", "", err
	}
	f, err := os.Open(path)
	if err != nil {
		switch {
		case errors.Is(err, fs.ErrPermission):
			return "", "", fmt.Errorf("%w; read it with sudo", err)
		case errors.Is(err, fs.ErrNotExist) && !strings.Contains(path, "/"):
			return "", "", fmt.Errorf("%s: no such file, and no manifest or session of that name has a log; %s", path, loggedNames())
		case errors.Is(err, fs.ErrNotExist):
			return "", "", fmt.Errorf("%w; name the file that enforce --events was given, or a manifest: %s", err, loggedNames())
		}
		return "", "", err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return "", "", fmt.Errorf("%s: is a folder; name a log in it", path)
	}
	return path, session, nil
}

// loggedNames says which names would have been found.
func loggedNames() string {
	if _, err := os.ReadDir(logDir); errors.Is(err, fs.ErrPermission) {
		return "logs in " + logDir + " belong to root: read them with sudo"
	}
	names, _ := logNames(nil, nil, "")
	if _, err := os.Stat(logDir); len(names) == 0 || err != nil {
		return "there is none in " + logDir + " yet"
	}
	return "there are: " + strings.Join(names, ", ")
}

func findLog(args []string) (path, session string, err error) {
	if len(args) == 1 {
		return namedLog(args[0])
	}
	logs, err := filepath.Glob(filepath.Join(logDir, "*.jsonl"))
	if err != nil {
		return "", "", fmt.Errorf("list %s: %w", logDir, err)
	}
	var at time.Time
	for _, log := range logs {
		if st, err := os.Stat(log); err == nil && st.Mode().IsRegular() && st.ModTime().After(at) {
			path, at = log, st.ModTime()
		}
	}
	if path == "" {
		if os.Geteuid() == 0 {
			return "", "", fmt.Errorf("no log in %s: no session has written one yet; name a file, if enforce --events named one", logDir)
		}
		return "", "", fmt.Errorf("no log in %s that can be read; run it with sudo, or name a file", logDir)
	}
	return path, "", nil
}

// namedLog takes a file, or what has its log in logDir: a manifest, a session (NAME-XXXX).
func namedLog(name string) (path, session string, err error) {
	if _, err := os.Stat(name); err == nil || strings.Contains(name, "/") {
		return name, "", nil
	}
	of := func(manifest string) string { return filepath.Join(logDir, manifest+".jsonl") }
	if _, err := os.Stat(of(name)); err == nil {
		return of(name), "", nil
	}
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		if _, err := os.Stat(of(name[:i])); err == nil {
			return of(name[:i]), name, nil
		}
	}
	return name, "", nil
}

// showLog prints the events of path until its end or, following, until ctx is done. It returns how many lines were no
// events.
func showLog(ctx context.Context, path string, follow bool, show eventFilter, w io.Writer) (bad int, err error) {
	log, err := openTail(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.file.Close() }()
	switch {
	case show.all, show.session != "" && !follow:
	case follow:
		err = log.toEnd()
	default:
		show.session, err = log.toLastSession()
	}
	if err != nil {
		return 0, err
	}
	p := printer{w: w}
	for {
		line, err := log.next()
		switch {
		case errors.Is(err, io.EOF):
			if err := p.flush(); err != nil || !follow {
				return bad, err
			}
			select {
			case <-ctx.Done():
				return bad, nil
			case <-time.After(followEvery):
			}
			if err := log.rotate(); err != nil {
				return bad, err
			}
			continue
		case errors.Is(err, event.ErrTooBig):
			bad++
			continue
		case err != nil:
			return bad, err
		}
		e, err := event.Parse(line)
		if err != nil || show.json && !json.Valid(line) {
			bad++
			continue
		}
		if !show.wants(e) {
			continue
		}
		if show.json {
			// The line itself, not the event: a newer sharness may have written keys that this one does not know.
			err = p.line(string(event.EscapeJSON(line)))
		} else {
			err = p.event(e, show.all)
		}
		if err != nil {
			return bad, err
		}
	}
}

// wants reports whether e was asked for.
func (f eventFilter) wants(e *event.Event) bool {
	return (f.door == "" || e.Door == f.door) && (f.typ == "" || string(e.Type) == f.typ) && (f.session == "" || e.Session == f.session)
}
