package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sharness/sharness/agent"
	"github.com/sharness/sharness/agent/learn"
	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/manifest"
)

// attempts leaves of what was tried that of which this host has something: programs look for files in many places where
// none is. It looks at names that the agent chose, follows them, and opens none; the agent is not told.
func (l *learning) attempts(seen *learn.Observation) []learn.Attempt {
	var all []learn.Attempt
	for _, a := range seen.Attempts {
		target, ok := a.Target, false // of what is no want, nothing
		switch agent.Want(a.Want) {
		case agent.WantRead:
			info, err := os.Stat(target)
			if ok = err == nil; ok && info.IsDir() && l.wide(target) {
				a.Want = learn.WantWide
			}
		case agent.WantExec:
			ok = program(target)
		case agent.WantWrite:
			target = existingFolder(target)
			ok = target != "/"
		case agent.WantConnect:
			target, ok = l.endpoint(target)
		}
		if !ok {
			continue
		}
		same := func(b learn.Attempt) bool { return a.Want == b.Want && target == b.Target }
		if at := slices.IndexFunc(all, same); at >= 0 {
			all[at].By = slices.Compact(slices.Sorted(slices.Values(slices.Concat(all[at].By, a.By))))
			continue
		}
		a.Target = target
		all = append(all, a)
	}
	return append(all, l.lookups()...)
}

// lookups are the names that were asked for, but for those that something has connected to: their ports are known.
func (l *learning) lookups() []learn.Attempt {
	var all []learn.Attempt
	for _, t := range l.names {
		port := func(u launcher.Name) bool { return u.Name == t.Name && u.Port != 0 }
		reached := func(u launcher.Name) bool { return u.Name == t.Name && u.Port == t.Port && u.Reached }
		switch {
		case t.Port == 0 && !slices.ContainsFunc(l.names, port):
			all = append(all, learn.Attempt{Want: learn.WantName, Target: t.Name})
		case t.Port != 0 && !slices.ContainsFunc(l.names, reached):
			all = append(all, learn.Attempt{Want: string(agent.WantConnect), Target: "tcp " + net.JoinHostPort(t.Name, strconv.Itoa(int(t.Port)))})
		}
	}
	return all
}

// reached are the endpoints that --learn-network let through, and that the manifest has not yet.
func (l *learning) reached() []manifest.Endpoint {
	var all []manifest.Endpoint
	for _, t := range l.names {
		if t.Reached {
			all = append(all, manifest.Endpoint{Name: t.Name, Port: t.Port, TLS: manifest.TLS(t.TLS)})
		}
	}
	return all
}

// existingFolder is the deepest folder on the way to a path.
func existingFolder(path string) string {
	for path != "/" {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}

// endpoint gives the address that stands for a name inside its name back, and leaves out what nobody can want: a socket that is
// not there, and the resolver that the view has none of.
func (l *learning) endpoint(target string) (string, bool) {
	proto, to, _ := strings.Cut(target, " ")
	if proto == "unix" {
		_, err := os.Stat(to)
		return target, strings.HasPrefix(to, "@") || err == nil
	}
	host, port, err := net.SplitHostPort(to)
	if err != nil || proto == "udp" && manifest.Loopback(host) && port == "53" {
		return "", false
	}
	for name, ip := range launcher.Inside(l.start.Connect) {
		if ip.String() == host {
			return proto + " " + net.JoinHostPort(name, port), true
		}
	}
	for _, t := range l.names {
		if t.Address.IsValid() && t.Address.String() == host {
			return proto + " " + net.JoinHostPort(t.Name, port), true
		}
	}
	return target, true
}

// peaks are the figures of the run as the header has them.
func (l *learning) peaks() manifest.LearnedPeaks {
	use := func(u launcher.Used) manifest.LearnedUse {
		ms := func(d time.Duration) manifest.Timeout { return manifest.Timeout(d.Truncate(time.Millisecond)) }
		return manifest.LearnedUse{Pids: u.Pids, Memory: manifest.Size(u.Memory), CPU: ms(u.CPU), Time: ms(u.Time)}
	}
	_, command, orchestrator := l.used.Get()
	return manifest.LearnedPeaks{Command: use(command), Orchestrator: use(orchestrator)}
}
