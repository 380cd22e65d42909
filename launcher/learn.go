package launcher

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/relay"
)

// Learn makes of a session one in which everything of the system may be executed, and recorded. All layers but the
// allowlist stay: uid, namespaces, filters, endpoints, routes, and nothing that the agent or a command can write may be
// executed. Without a tracer there is no such session.
type Learn struct {
	// Trees may be executed in, beside those that the manifest lets be read. They are shown read-only.
	Trees []string
	// Ring is how many bytes of records may wait to be read; 0 leaves it to the tracer.
	Ring uint32
	// Network carries the orchestrator's connections to any public name, on networkPorts: an open gap that the user chose.
	Network bool
	// Names reads to its end what is told of names that were looked up, and of what connected to them (ReadNames), as Observe does.
	Names func(io.Reader) error
	// Peaks are filled in while the session runs.
	Peaks Peaks
	// Observe reads the recorder's messages to their end. It runs beside the session and returns before Enforce does. What it
	// reads was written by a process that reads what the agent chose.
	Observe func(io.Reader) error
}

// Name is what the relay of a session that learns tells of a name.
type Name = relay.Told

// ReadNames reads what it tells, to its end.
func ReadNames(r io.Reader) ([]Name, error) { return relay.ReadTold(r) }

// networkPorts are those on which Learn.Network carries.
var networkPorts = []uint16{80, 443}

// naming is what a relay gets to learn names with.
type naming struct {
	out    *os.File // the relay's end; ours to close, so that one that is started again can go on
	result chan error
}

// learnNames prepares a relay that learns: it is asked for names instead of a name server that there is none of inside.
func (r *run) learnNames(addrs []listenAddr) ([]listenAddr, *relay.Learn, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	l := r.s.learn
	r.naming = &naming{out: out, result: make(chan error, 1)}
	go func() {
		r.naming.result <- errors.Join(l.Names(in), in.Close())
	}()
	addrs = append(addrs, listenAddr{ip: net.IPv4(127, 0, 0, 1), port: 53, queries: true})
	config := &relay.Learn{Open: l.Network}
	if !l.Network {
		return addrs, config, nil
	}
	config.Ports = networkPorts
	for i := range addrs {
		addrs[i].shared = slices.Contains(networkPorts, addrs[i].port)
	}
	for _, port := range networkPorts {
		addrs = append(addrs, listenAddr{ip: net.IPv4zero, port: port, shared: true})
	}
	const gap = "learn: every public name can be reached, on ports 80 and 443, as --learn-network asked for"
	r.o.Notice(gap)
	r.events.Send(event.Event{Type: event.LayerOpen, Layer: "connect", Door: "net-host", Cause: "--learn-network", Detail: gap})
	return addrs, config, nil
}

// named ends the learning of names and returns what Names says. The relay has ended.
func (n *naming) named() error {
	if n == nil {
		return nil
	}
	return errors.Join(n.out.Close(), <-n.result)
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
	c.Stage = trace.Policy.Stage[0]
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
