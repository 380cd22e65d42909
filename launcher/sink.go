package launcher

import (
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/launcher/filter"
)

// The producers of events. Each has a channel of its own: one that was taken over cannot speak for another.
const (
	feedSupervisor = iota
	feedBashd
	feedRelay
	feedWatch
	feeds
)

var feedNames = [feeds]string{"supervisor", "sharness-bashd", "sharness-relay", "sharness-watch"}

// sinkProcess is sharness-agent, which alone writes what comes from a domain into files.
type sinkProcess struct {
	events *sink.Sender // the supervisor's own
	ends   [feeds]*os.File
	proc   *helperProcess
}

// agentConfig is what cmd/sharness-agent reads.
type agentConfig struct {
	sink.Config
	Fold    event.FoldOptions `json:"fold"`
	Confine confine.Drop      `json:"confine"`
}

// openSinks opens what the user named with the user's reach, before anything of the session exists.
func openSinks(s *Session, specs []sink.Spec) (opened []sink.Opened, err error) {
	defer func() {
		if err != nil {
			for _, o := range opened {
				o.File.Close()
			}
		}
	}()
	ids := &sink.IDs{UID: s.User.UID, GID: s.User.GID, Groups: s.User.Groups}
	for _, spec := range specs {
		user := ids
		if spec == DefaultSink(s.Manifest.Name) {
			user = nil // ours, in a folder of root's
			if err := os.MkdirAll(logDir, 0o750); err != nil {
				return opened, refusef("events: %w", err)
			}
		}
		o, err := sink.Open(spec, user)
		if err != nil {
			return opened, &Refused{err}
		}
		opened = append(opened, o)
	}
	return opened, nil
}

// startSink starts sharness-agent with sinks that stay the caller's.
func startSink(sp *spawner, s *Session, opened []sink.Opened) (*sinkProcess, error) {
	k := &sinkProcess{}
	var received []sink.Feed
	defer func() {
		for _, f := range received {
			f.File.Close()
		}
	}()
	for i := range feeds {
		send, receive, err := sink.Pair()
		if err != nil {
			return nil, err
		}
		k.ends[i] = send
		received = append(received, sink.Feed{Name: feedNames[i], File: receive, Trusted: i == feedSupervisor})
	}
	config, files, err := sink.Arrange(s.ID, received, opened, nil)
	if err != nil {
		return nil, err
	}
	progs, err := helperFilter(filter.Options{})
	if err != nil {
		return nil, err
	}
	uid := helperUID(s.UID, helperAgent)
	k.proc, err = sp.startHelper(helperSpec{name: "sharness-agent", uid: uid, gid: uid, events: files[1], extra: files[3:],
		config: agentConfig{Config: config, Confine: confine.Drop{Landlock: s.helperLandlock(), Seccomp: progs}}})
	if err != nil {
		return nil, err
	}
	k.events = sink.NewSender(k.ends[feedSupervisor], feedNames[feedSupervisor])
	return k, nil
}

// logDir holds the default logs, a file per manifest. It is made when it is needed.
const logDir = "/var/log/sharness"

// DefaultSink is the sink of a manifest without --events.
func DefaultSink(name string) sink.Spec {
	return sink.Spec{Kind: sink.File, Path: filepath.Join(logDir, name+".jsonl")}
}

// finish closes the channels and lets the sink write what it holds.
func (k *sinkProcess) finish() {
	k.events.Close()
	for _, f := range k.ends[feedSupervisor+1:] {
		f.Close()
	}
	k.proc.finish(5 * time.Second)
}

// failed says how the sink ended, if it did not end well.
func (k *sinkProcess) failed() string {
	if k.proc.how.ExitStatus() == 0 && !k.proc.how.Signaled() {
		return ""
	}
	return "sharness-agent ended: " + describe(syscall.WaitStatus(k.proc.how))
}
