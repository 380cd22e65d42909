package launcher

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/launcher/filter"
	"github.com/sharness/sharness/launcher/host"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/launcher/relay"
	"github.com/sharness/sharness/launcher/resolve"
	"github.com/sharness/sharness/launcher/stage"
	"github.com/sharness/sharness/manifest"
)

// prepare probes the host and decides, before anything is made: a host that cannot hold a door shut is refused here.
func (s *Session) prepare(allowOpen []string) error {
	m := s.Manifest
	paths := []string{s.Workspace.Name()}
	if m.State != nil {
		paths = append(paths, existingParent(m.State.Path))
	}
	f, err := host.Probe(host.Options{Paths: paths})
	if err != nil {
		return fmt.Errorf("probe host: %w", err)
	}
	d, err := resolve.Resolve(m, f, allowOpen)
	if err != nil {
		return &Refused{err}
	}
	if err := d.Err(); err != nil {
		return &Refused{err}
	}
	s.Features, s.Decision = f, d
	if s.hostNet, err = os.Readlink("/proc/self/ns/net"); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if s.orchestratorFilter, err = filter.Compile(filter.Options{Kind: filter.Orchestrator, Memfd: m.Memfd, DenyRecvmsg: m.Recvmsg == manifest.RecvmsgDeny}); err != nil {
		return err
	}
	if s.commandFilter, err = filter.Compile(filter.Options{Kind: filter.Command}); err != nil {
		return err
	}
	return nil
}

// existingParent is the deepest folder of a path that exists: what is made below it lies on its file system.
func existingParent(path string) string {
	for path != "/" {
		if _, err := os.Stat(path); err == nil {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}

// cgroupPath is a group of this session.
func (s *Session) cgroupPath(name string) string { return cgroupRoot + "/" + s.ID + "/" + name }

// maxNames is how many names fit into 127.0.1.0/24.
const maxNames = 254

// Inside gives every name among endpoints its address inside. Those beyond maxNames get none of their own.
func Inside(list []manifest.Endpoint) map[string]net.IP {
	byName := map[string]net.IP{}
	for _, c := range list {
		if net.ParseIP(c.Name) == nil && byName[c.Name] == nil {
			byName[c.Name] = net.IPv4(127, 0, 1, byte(len(byName)+1))
		}
	}
	return byName
}

// endpoints gives every endpoint of the manifest its address inside: a loopback literal is itself, a name gets one of
// 127.0.1.0/24 that the view's /etc/hosts maps it to.
func (s *Session) endpoints() (addrs []listenAddr, hosts []hostEntry, eps []relay.Endpoint, err error) {
	byName, told := Inside(s.Manifest.Connect), map[string]bool{}
	if len(byName) > maxNames {
		return nil, nil, nil, refusef("connect: more than %d names", maxNames)
	}
	for _, c := range s.Manifest.Connect {
		ip := byName[c.Name]
		if ip == nil {
			ip = net.ParseIP(c.Name)
		} else if !told[c.Name] {
			told[c.Name] = true
			hosts = append(hosts, hostEntry{ip.String(), c.Name})
		}
		addrs = append(addrs, listenAddr{ip: ip, port: c.Port})
		eps = append(eps, relay.Endpoint{Name: c.Name, Port: c.Port, TLS: c.TLS, Upstream: net.JoinHostPort(c.Name, fmt.Sprint(c.Port))})
	}
	return addrs, hosts, eps, nil
}

// orchestratorPlan is the plan of the orchestrator.
func (s *Session) orchestratorPlan(v *view, set *protect.Set, argv, env []string, cwd string) *stage.Plan {
	m := s.Manifest
	layer := confineLayer(v)
	layer.Net, layer.BindTCP = true, true
	for _, c := range m.Connect {
		if !slices.Contains(layer.TCP, c.Port) {
			layer.TCP = append(layer.TCP, c.Port)
		}
	}
	if s.learn != nil && s.learn.Network {
		layer.TCP = append(layer.TCP, networkPorts...)
		slices.Sort(layer.TCP)
		layer.TCP = slices.Compact(layer.TCP)
	}
	return &stage.Plan{
		Hostname: viewHostname,
		Mounts:   v.mounts, Files: v.files, Links: v.links,
		Protected: s.protected(set),
		Sysctls:   s.sysctls(), MaskProc: maskedProc, ReadProc: readOnlyProc,
		UID: uint32(s.UID), GID: uint32(s.UID),
		Rlimits:  rlimits(),
		Outer:    s.outer(),
		Landlock: s.landlockOf(layer),
		Seccomp:  s.orchestratorFilter,
		Probe:    append(s.orchestratorChecks(v), s.protectedCheck(set)...),
		Path:     argv[0], Argv: argv, Env: env, Cwd: cwd,
		CwdBelow: []string{s.Workspace.Name()},
	}
}

// Unlisted are programs that every host has one of; the first that is neither pinned nor routed is what the self-probe, and
// sharness prove, try to start and to map.
var Unlisted = []string{"/usr/bin/env", "/usr/bin/true", "/usr/bin/id", "/usr/bin/ls"}

func (s *Session) orchestratorChecks(v *view) []stage.Check {
	checks := s.commandChecks()
	if !s.Manifest.Memfd {
		checks = append(checks, stage.Check{Door: "exec-memfd", Try: stage.TryMemfd})
	}
	if s.Decision.Landlock.TCP && !slices.ContainsFunc(s.Manifest.Connect, func(c manifest.Endpoint) bool { return c.Port == 1 }) {
		checks = append(checks, stage.Check{Door: "net-host", Try: stage.TryConnect})
	}
	for _, p := range append([]string{s.Workspace.Name(), "/tmp", "/var/tmp", "/dev/shm"}, s.stateFolder()...) {
		checks = append(checks, stage.Check{Door: "exec-inject", Try: stage.TryNoexec, Path: p})
	}
	for _, p := range s.stateFolder() {
		checks = append(checks, stage.Check{Door: "file-fifo", Try: stage.TryFifo, Path: p})
	}
	if s.Manifest.Workspace.Orchestrator == manifest.AccessRead {
		checks = append(checks, stage.Check{Door: "file-meta", Try: stage.TryReadOnly, Path: s.Workspace.Name()})
	}
	if s.learn != nil {
		return checks // what is not listed may be executed
	}
	for _, p := range Unlisted {
		real, err := filepath.EvalSymlinks(p)
		if err != nil || !slices.ContainsFunc(v.mounts, func(m stage.Mount) bool { return below(real, m.Target) && m.FD > 0 }) {
			continue
		}
		if slices.ContainsFunc(v.mounts, func(m stage.Mount) bool { return m.Target == real }) {
			continue
		}
		return append(checks, stage.Check{Door: "exec-direct", Try: stage.TryExec, Path: real}, stage.Check{Door: "exec-ldso", Try: stage.TryMapExec, Path: real})
	}
	return checks
}

// stateFolder is the state's path, or nothing.
func (s *Session) stateFolder() []string {
	if s.State == nil {
		return nil
	}
	return []string{s.State.Name()}
}

// helperFilter compiles the filter of one helper process.
func helperFilter(o filter.Options) ([][]byte, error) {
	o.Kind = filter.Helper
	return filter.Compile(o)
}

// helperLandlockABI is the ABI that helpers confine themselves with.
func (s *Session) helperLandlockABI() int {
	return min(s.Decision.Landlock.ABI, confine.MaxLandlockABI)
}

// helperLandlock is the layer of a helper that opens nothing and connects to nothing.
func (s *Session) helperLandlock() confine.Landlock {
	return confine.Landlock{ABI: s.helperLandlockABI(), FS: true, Net: s.Decision.Landlock.TCP, Scoped: s.Decision.Landlock.Scoped}
}
