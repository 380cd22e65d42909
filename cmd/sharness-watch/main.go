// Command sharness-watch finds the protected paths of a workspace and takes away protected names that appear in it. The
// supervisor starts it with the user's ids and without a capability; it confines itself before it looks at the tree. It
// is a program of its own because a program with cgo, as sharness is, cannot confine all of its threads.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/launcher/protect"
	"golang.org/x/sys/unix"
)

// The descriptors the supervisor passes.
const (
	controlFD    = 3 // seqpacket, protect.Record
	eventsFD     = 4 // datagram, event.Event
	configFD     = 5 // protect.Config as JSON
	workspaceFD  = 6 // directory
	setFD        = 7 // pipe: protect.Set.Encode, then closed
	quarantineFD = 8 // empty directory of the user, outside the workspace
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sharness-watch:", err)
		os.Exit(1)
	}
}

func run() error {
	file := os.NewFile(configFD, "config")
	cfg, err := protect.ReadConfig(io.NewSectionReader(file, 0, protect.MaxConfigBytes)) // by offset: the position is shared with the writer
	if err != nil {
		return err
	}
	file.Close()
	const work = confine.AccessRead | confine.AccessWrite
	err = confine.Self(confine.Drop{
		Keep: []int{controlFD, eventsFD, workspaceFD, setFD, quarantineFD},
		Landlock: confine.Landlock{ABI: cfg.LandlockABI, FS: true, Net: cfg.LandlockABI >= 4, Scoped: cfg.LandlockABI >= 6,
			Paths: []confine.PathRule{
				{Path: fmt.Sprintf("/proc/self/fd/%d", workspaceFD), Access: work},
				{Path: fmt.Sprintf("/proc/self/fd/%d", quarantineFD), Access: work},
			}},
		Seccomp: cfg.Seccomp,
	})
	if err != nil {
		return err
	}
	root, out := os.NewFile(workspaceFD, "workspace"), os.NewFile(setFD, "set")
	set, err := protected(root, out, cfg)
	if err != nil {
		return err
	}
	if cfg.Started.IsZero() {
		cfg.Started = protect.Begin(workspaceFD)
	}
	w := protect.NewWatcher(root, os.NewFile(quarantineFD, "quarantine"), os.NewFile(controlFD, "control"), cfg, set, send())
	return w.Run()
}

// protected is the set that is known already, or what is found now and told to the supervisor.
func protected(root, out *os.File, cfg protect.Config) (*protect.Set, error) {
	defer out.Close()
	if cfg.Known != nil {
		return protect.Decode(bytes.NewReader(cfg.Known))
	}
	opts, err := cfg.Options()
	if err != nil {
		return nil, err
	}
	set, err := protect.Discover(root, opts)
	if err != nil {
		return nil, err
	}
	if err := set.Encode(out); err != nil {
		return nil, fmt.Errorf("write the protected paths: %w", err)
	}
	return set, nil
}

// send passes events on without waiting. What the sink was too slow for is counted and reported with the next one.
func send() func(event.Event) {
	lost := uint64(0)
	put := func(e event.Event) bool {
		e.Schema, e.Time = event.Schema, time.Now().UTC()
		b, err := event.Encode(&e)
		return err == nil && unix.Sendto(eventsFD, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) == nil
	}
	return func(e event.Event) {
		if lost > 0 && put(event.Event{Type: event.EventsLost, Count: lost, Layer: protect.Layer}) {
			lost = 0
		}
		if !put(e) {
			lost++
		}
	}
}
