package launcher

import (
	"errors"
	"io"
	"os"
	"slices"
)

// Learn makes of a session one in which everything of the system may be executed, and recorded. All layers but the
// allowlist stay: uid, namespaces, filters, endpoints, routes, and nothing that the agent or a command can write may be
// executed. Without a tracer there is no such session.
type Learn struct {
	// Trees may be executed in, beside those that the manifest lets be read. They are shown read-only.
	Trees []string
	// Ring is how many bytes of records may wait to be read; 0 leaves it to the tracer.
	Ring uint32
	// Peaks are filled in while the session runs.
	Peaks Peaks
	// Observe reads the recorder's messages to their end. It runs beside the session and returns before Enforce does. What it
	// reads was written by a process that reads what the agent chose.
	Observe func(io.Reader) error
}

// learnConfig is what the recorder in sharness-agent has to know.
type learnConfig struct {
	UID      int      `json:"uid"`
	Own      []string `json:"own"`
	Routed   []string `json:"routed"`
	Writable []string `json:"writable"`
	Shown    []string `json:"shown"`
	Stage    string   `json:"stage"`
	Late     bool     `json:"late"`
	FD       int      `json:"fd"`

	out    *os.File   // the recorder's end; ours to close, so that one that is started again can go on
	result chan error // of Observe
}

// at is the configuration of one recorder.
func (c *learnConfig) at(fd int, late bool) *learnConfig {
	own := *c
	own.FD, own.Late = fd, late
	return &own
}

// observe lets what is traced be recorded, if that is wanted.
func (r *run) observe(trace *traceConfig, untraced error) error {
	if r.s.learn == nil || untraced != nil {
		return untraced
	}
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	s := r.s
	c := &learnConfig{UID: s.UID, Writable: []string{s.Workspace.Name(), "/tmp", "/var/tmp", "/dev/shm"}, out: out, result: make(chan error, 1)}
	if s.State != nil {
		c.Writable = append(c.Writable, s.State.Name())
	}
	for _, e := range s.Manifest.Exec {
		c.Own = append(c.Own, e.Path)
	}
	if c.Routed, err = s.routeTargets(); err != nil {
		return errors.Join(err, in.Close(), out.Close())
	}
	c.Routed = append(c.Routed, viewClient)
	c.Shown, _, _ = s.systemTrees()
	c.Stage = trace.Policy.Stage
	trace.Maps, trace.Tried, trace.Ring, trace.Learn = true, true, s.learn.Ring, c
	go func() {
		c.result <- errors.Join(s.learn.Observe(in), in.Close())
	}()
	return nil
}

// observed ends the recording and returns what Observe says. The recorder has ended.
func (t *traceConfig) observed() error {
	if t == nil || t.Learn == nil {
		return nil
	}
	return errors.Join(t.Learn.out.Close(), <-t.Learn.result)
}

// unlearned refuses: a recorder that sees less would make a manifest that allows less than the agent needs, or more.
func unlearned(err error) error { return refusef("learn: nothing can be recorded: %w", err) }

// systemTrees are the trees of the orchestrator's view that no domain can write.
func (s *Session) systemTrees() (trees []string, attr, access uint64) {
	if s.learn == nil {
		return s.Manifest.Read, attrSystem, accessRead
	}
	trees = slices.Clone(s.Manifest.Read)
	for _, dir := range s.learn.Trees {
		if !slices.ContainsFunc(trees, func(have string) bool { return below(dir, have) }) {
			trees = append(trees, dir)
		}
	}
	return trees, attrPinned, accessTree
}
