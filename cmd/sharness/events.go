package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	json bool
	door string
	typ  string
}

func newEventsCmd() *cobra.Command {
	var show eventFilter
	var follow bool
	cmd := &cobra.Command{
		Use:   "events [FILE]",
		Short: "Read and follow the log of a session",
		Long: `Read and follow the log of a session: one line an event, escaped, so that nothing an agent wrote can drive the
terminal. FILE is by default the log in ` + logDir + ` that was written last.`,
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := show.check(); err != nil {
				return &exitError{125, err}
			}
			path, err := chooseLog(args)
			if err != nil {
				return &exitError{125, err}
			}
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
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more, through rotation too")
	cmd.Flags().BoolVar(&show.json, "json", false, "print the JSON lines")
	cmd.Flags().StringVar(&show.door, "door", "", "only events of this side door")
	cmd.Flags().StringVar(&show.typ, "type", "", "only events of this type")
	return cmd
}

func (f eventFilter) check() error {
	if _, ok := sidedoor.ByID(f.door); f.door != "" && !ok {
		return fmt.Errorf("events: --door %s: no such door; sharness doctor lists them", f.door)
	}
	if f.typ != "" && !event.Type(f.typ).Known() {
		return fmt.Errorf("events: --type %s: no such type", f.typ)
	}
	return nil
}

func chooseLog(args []string) (string, error) {
	if len(args) == 1 {
		return args[0], nil
	}
	logs, err := filepath.Glob(filepath.Join(logDir, "*.jsonl"))
	if err != nil {
		return "", fmt.Errorf("events: list %s: %w", logDir, err)
	}
	var newest string
	var at time.Time
	for _, path := range logs {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.ModTime().After(at) {
			newest, at = path, st.ModTime()
		}
	}
	if newest == "" {
		return "", fmt.Errorf("events: no log in %s that can be read; name a FILE, or run as root", logDir)
	}
	return newest, nil
}

// showLog prints the events of path until its end or, following, until ctx is done. It returns how many lines were no
// events.
func showLog(ctx context.Context, path string, follow bool, show eventFilter, w io.Writer) (bad int, err error) {
	log, err := openTail(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.file.Close() }()
	for {
		line, err := log.next()
		switch {
		case errors.Is(err, io.EOF) && !follow:
			return bad, nil
		case errors.Is(err, io.EOF):
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
		text, ok := show.line(line)
		if !ok {
			bad++
			continue
		}
		if text == "" {
			continue
		}
		if _, err := io.WriteString(w, text+"\n"); err != nil {
			return bad, err
		}
	}
}

// line is what is shown of one line of a log: "" when it is filtered out; not ok when it is no event.
func (f eventFilter) line(line []byte) (text string, ok bool) {
	e, err := event.Parse(line)
	if err != nil {
		return "", false
	}
	if f.door != "" && e.Door != f.door || f.typ != "" && string(e.Type) != f.typ {
		return "", true
	}
	if !f.json {
		return event.Human(e), true
	}
	if !json.Valid(line) {
		return "", false
	}
	// The line itself, not the event: a newer sharness may have written keys that this one does not know.
	return string(event.EscapeJSON(line)), true
}
