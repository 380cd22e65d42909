package prove

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
)

// unlisted is a program of this host that a manifest neither pins nor routes. A script that begins with "#!/usr/bin/env"
// has that pinned.
func unlisted(m *manifest.Manifest) string {
	for _, name := range launcher.Unlisted {
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			continue
		}
		if m == nil || !slices.Contains(m.Route, name) && !slices.Contains(m.Route, real) &&
			!slices.ContainsFunc(m.Exec, func(e manifest.Exec) bool { return e.Path == name || e.Path == real }) {
			return real
		}
	}
	return ""
}

// inPlaceOf is a person's manifest with the probe in the place of its command. Workspace and state are the site's own: what
// is attacked must not be a person's work or login. What of the state commands share goes with it.
func (s *site) inPlaceOf(m *manifest.Manifest, program string) (*manifest.Manifest, error) {
	c, err := pin.Resolve(program, "")
	if err != nil {
		return nil, err
	}
	m = m.Clone()
	m.Name, m.Command, m.Args, m.Learned = "prove", []string{program}, nil, nil
	for _, e := range c.Exec {
		if !slices.ContainsFunc(m.Exec, func(x manifest.Exec) bool { return x.Path == e.Path }) {
			m.Exec = append(m.Exec, e)
		}
	}
	slices.SortFunc(m.Exec, func(a, b manifest.Exec) int { return strings.Compare(a.Path, b.Path) })
	if m.State != nil {
		m.State = &manifest.State{Path: s.state}
	}
	m.Sandbox.Share, m.Sandbox.Hide, m.Sandbox.Freeze = nil, nil, nil
	m.Workspace.Path = s.workspace
	// The bombs need limits that a host can bear to have met.
	m.Limits.Pids, m.Limits.Memory, m.Limits.Tmp = min(m.Limits.Pids, limits.Pids), min(m.Limits.Memory, limits.Memory), min(m.Limits.Tmp, limits.Tmp)
	return m, nil
}
