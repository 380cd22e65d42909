package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sharness/sharness/manifest"
)

// traceConfig makes sharness-agent a tracer too: it is started as root, attaches, and takes uid before it reads a byte.
// It and tracePolicy are what cmd/sharness-agent and package agent read; they decode strictly.
type traceConfig struct {
	Cgroups []string     `json:"cgroups"`
	Maps    bool         `json:"maps,omitempty"`
	Policy  tracePolicy  `json:"policy"`
	UID     int          `json:"uid"`
	GID     int          `json:"gid"`
	Ready   int          `json:"ready"`
	Learn   *learnConfig `json:"learn,omitempty"`
}

// tracePolicy is what a denial is explained by.
type tracePolicy struct {
	Exec      []string          `json:"exec"`
	Libraries []string          `json:"libraries"`
	Loaders   []string          `json:"loaders"`
	Routed    []string          `json:"routed"`
	Links     map[string]string `json:"links"`
	Workspace string            `json:"workspace"`
	State     string            `json:"state"`
	Scratch   []string          `json:"scratch"`
	Layers    []string          `json:"layers"`
	Client    string            `json:"client"`
	Stage     string            `json:"stage"`
}

// traceReport is the tracer's one word, said before it has read anything.
type traceReport struct {
	Traced bool   `json:"traced"`
	Reason string `json:"reason,omitempty"`
}

// traceTime bounds loading and attaching; the verifier takes most of it.
const traceTime = 30 * time.Second

// trace says what is traced: the orchestrator's group, in the hierarchy that BPF knows.
func (s *Session) trace(group *cgroup) (*traceConfig, error) {
	if group.unified == "" {
		return nil, errors.New("no cgroup2 hierarchy is mounted, by which the tracing programs know the orchestrator")
	}
	stage, err := Helper("sharness-init")
	if err != nil {
		return nil, err
	}
	m, uid := s.Manifest, helperUID(s.UID, helperAgent)
	p := tracePolicy{
		Routed: s.routes(), Links: map[string]string{}, Workspace: s.Workspace.Name(), Scratch: []string{"/tmp", "/var/tmp", "/dev/shm"}, Client: viewClient, Stage: stage,
	}
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
	return &traceConfig{Cgroups: []string{group.unified}, Policy: p, UID: uid, GID: uid}, nil
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
