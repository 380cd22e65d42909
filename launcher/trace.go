package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/manifest"
)

// traceConfig makes sharness-agent a tracer too: it is started as root, attaches, and takes uid before it reads a byte.
// It and tracePolicy are what cmd/sharness-agent and package agent read; they decode strictly.
type traceConfig struct {
	Cgroups []string     `json:"cgroups"`
	Maps    bool         `json:"maps,omitempty"`
	Files   bool         `json:"files,omitempty"`
	Argv    bool         `json:"argv,omitempty"`
	Hooks   bool         `json:"hooks,omitempty"`
	Tried   bool         `json:"tried,omitempty"`
	Ring    uint32       `json:"ring,omitempty"`
	Policy  tracePolicy  `json:"policy"`
	UID     int          `json:"uid"`
	GID     int          `json:"gid"`
	Ready   int          `json:"ready"`
	Names   int          `json:"names"`
	Learn   *learnConfig `json:"learn,omitempty"`
}

// tracePolicy is what a denial is explained by.
type tracePolicy struct {
	Exec      []string          `json:"exec"`
	Libraries []string          `json:"libraries"`
	Loaders   []string          `json:"loaders"`
	Needs     map[string]string `json:"needs"`
	Routed    []string          `json:"routed"`
	Links     map[string]string `json:"links"`
	Workspace string            `json:"workspace"`
	State     string            `json:"state"`
	Scratch   []string          `json:"scratch"`
	Layers    []string          `json:"layers"`
	Client    string            `json:"client"`
	Stage     []string          `json:"stage"`
}

// traceReport is the tracer's one word, said before it has read anything.
type traceReport struct {
	Traced bool   `json:"traced"`
	Reason string `json:"reason,omitempty"`
}

// traceTime bounds loading and attaching; the verifier takes most of it.
const traceTime = 30 * time.Second

// trace says what is traced: the orchestrator's group, in the hierarchy that BPF knows, and what else was asked for.
func (s *Session) trace(group *cgroup, o Options) (*traceConfig, error) {
	if group.unified == "" {
		return nil, errors.New("no cgroup2 hierarchy is mounted, by which the tracing programs know the orchestrator")
	}
	var stage []string
	for _, name := range []string{"sharness-init", "sharness-box"} {
		path, err := Helper(name)
		if err != nil {
			return nil, err
		}
		stage = append(stage, path)
	}
	m, uid := s.Manifest, helperUID(s.UID, helperAgent)
	p := tracePolicy{
		Routed: s.routes(), Links: map[string]string{}, Workspace: s.Workspace.Name(), Scratch: []string{"/tmp", "/var/tmp", "/dev/shm"}, Client: viewClient, Stage: stage,
	}
	targets, err := s.routeTargets()
	if err != nil {
		return nil, err
	}
	p.Routed, p.Needs = append(p.Routed, targets...), s.needs()
	for _, e := range m.Exec {
		p.Exec = append(p.Exec, e.Path)
		if e.Role == manifest.RoleLoader {
			p.Loaders = append(p.Loaders, e.Path)
		}
	}
	for _, l := range m.Libraries {
		p.Libraries = append(p.Libraries, l.Path)
	}
	for _, link := range rootLinks {
		if target, err := os.Readlink(link); err == nil {
			p.Links[link] = filepath.Join("/", target)
		}
	}
	if s.State != nil {
		p.State = s.State.Name()
	}
	for _, l := range s.Decision.Layers {
		if l.Holds {
			p.Layers = append(p.Layers, string(l.Name))
		}
	}
	return &traceConfig{Cgroups: []string{group.unified}, Files: o.EventsFiles, Hooks: o.EventsFiles, Argv: o.EventsArgv, Policy: p, UID: uid, GID: uid}, nil
}

// needs says which interpreter or loader the kernel starts each pinned file with: where that is not pinned, a refusal
// names the file, and this what was missing. Only files that are what the manifest says are looked at, and only through the
// mount that was hashed. What cannot be read is left unexplained: nothing is decided by it.
func (s *Session) needs() map[string]string {
	needs := map[string]string{}
	if s.learn != nil {
		return needs // everything may be started
	}
	for _, e := range s.Manifest.Exec {
		f, err := openMount(s.pins[e.Path])
		if err != nil {
			continue
		}
		if start, err := pin.StartsWith(f, e.Path); err == nil && start != "" {
			needs[e.Path] = start
		}
		f.Close()
	}
	return needs
}

// protectedNames are the names in the workspace that nobody in the session may write, those that are not there included,
// each behind its door and a space, and ended by a NUL: a name may hold any other byte.
func protectedNames(set *protect.Set) []byte {
	b := []byte{}
	add := func(rel string) { b = append(append(b, protect.Door(rel)+" "+rel...), 0) }
	for _, e := range set.Existing {
		if e.Mode == protect.ReadOnly {
			add(e.Rel)
		}
	}
	for _, rel := range set.Absent {
		add(rel)
	}
	return b
}

// awaitTracer waits until the programs are attached: the orchestrator starts after that. What it says was said before it
// read a byte of anybody.
func awaitTracer(ready *os.File) error {
	if err := ready.SetReadDeadline(time.Now().Add(traceTime)); err != nil {
		return err
	}
	data, err := readAtMost(ready, 16<<10)
	if err != nil {
		return fmt.Errorf("sharness-agent did not get ready: %w", err)
	}
	var r traceReport
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("sharness-agent ended before it was ready: %w", err)
	}
	if !r.Traced {
		return errors.New(r.Reason)
	}
	return nil
}
