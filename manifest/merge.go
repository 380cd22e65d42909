package manifest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Merge returns a manifest that allows what a or b allows, and protects what a or b protects: lists are united, of two
// limits the larger counts, of two accesses the wider. What cannot be both (two contents of one file, two values of a
// variable, two names) is an error that names the key; neither side is preferred in silence. The command, its
// arguments and its profile are a's.
func Merge(a, b *Manifest) (*Manifest, error) {
	if a.Name != b.Name {
		return nil, fmt.Errorf("merge: name: %s and %s are manifests of different programs", quote(a.Name), quote(b.Name))
	}
	x, y := a.Clone(), b.Clone()
	m := &merger{}
	m.list("exec", &x.Exec, y.Exec)
	m.list("libraries", &x.Libraries, y.Libraries)
	m.list("route", &x.Route, y.Route)
	m.list("read", &x.Read, y.Read)
	x.Memfd = x.Memfd || y.Memfd
	if x.Recvmsg == RecvmsgDeny { // what one of them needs, the union has
		x.Recvmsg = y.Recvmsg
	}
	m.state(&x.State, y.State)
	m.workspace(&x.Workspace, y.Workspace)
	m.list("connect", &x.Connect, y.Connect)
	m.env("env", &x.Env, y.Env)
	either(m, "shell", &x.Shell, y.Shell)
	m.limits(x, y)
	m.sandbox(&x.Sandbox, y.Sandbox)
	m.list("secrets.env", &x.Secrets.Env, y.Secrets.Env)
	either(m, "secrets.rules", &x.Secrets.Rules, y.Secrets.Rules)
	either(m, "secrets.escapes", &x.Secrets.Escapes, y.Secrets.Escapes)
	either(m, "secrets.binary", &x.Secrets.Binary, y.Secrets.Binary)
	m.list("integrity", &x.Integrity, y.Integrity)
	x.Learned = MergeLearned(x.Learned, y.Learned)
	if m.err == nil {
		m.err = x.Validate()
	}
	if m.err != nil {
		return nil, m.err
	}
	return x, nil
}

type merger struct{ err error }

func (m *merger) conflict(key, a, b string) {
	if m.err == nil {
		m.err = fmt.Errorf("merge: %s: %s and %s cannot both hold", key, a, b)
	}
}

// list unites two lists; entries about the same thing must say the same.
func (m *merger) list(key string, a any, b any) {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b)
	for i := range y.Len() {
		switch at := indexOf(x, y.Index(i)); {
		case at < 0:
			x.Set(reflect.Append(x, y.Index(i)))
		case !x.Index(at).Equal(y.Index(i)):
			m.conflict(key, inline(x.Index(at)), inline(y.Index(i)))
		}
	}
}

// either takes the value that was written; two must be equal.
func either[T comparable](m *merger, key string, a *T, b T) {
	var unset T
	if *a == unset {
		*a = b
	}
	if b != unset && *a != b {
		m.conflict(key, inline(reflect.ValueOf(*a)), inline(reflect.ValueOf(b)))
	}
}

func (m *merger) state(a **State, b *State) {
	if *a == nil || b == nil {
		if *a == nil {
			*a = b
		}
		return
	}
	either(m, "state.path", &(*a).Path, b.Path)
	m.list("state.seed", &(*a).Seed, b.Seed)
	m.list("state.protect", &(*a).Protect, b.Protect)
	m.list("state.diff", &(*a).Diff, b.Diff)
}

func (m *merger) workspace(a *Workspace, b Workspace) {
	either(m, "workspace.path", &a.Path, b.Path)
	if b.Orchestrator == AccessWrite || a.Orchestrator == "" {
		a.Orchestrator = b.Orchestrator
	}
	// No set of protected names holds only if both say so: a missing key means the default set.
	if b.Protect != ProtectNone && a.Protect == ProtectNone {
		a.Protect = ProtectDefault
	}
	m.list("workspace.protect_extra", &a.ProtectExtra, b.ProtectExtra)
}

func (m *merger) env(key string, a *Env, b Env) {
	m.list(key+".pass", &a.Pass, b.Pass)
	for _, name := range sortedKeys(b.Set) {
		value, both := a.Set[name]
		if both && value != b.Set[name] {
			m.conflict(key+".set."+name, quote(value), quote(b.Set[name]))
		}
		if a.Set == nil {
			a.Set = map[string]string{}
		}
		a.Set[name] = b.Set[name]
	}
}

// larger keeps zero ("the default") unless the other side wants more than the default is.
func larger[T int | Size | Percent](a *T, b, byDefault T) {
	switch {
	case b == 0 && *a < byDefault:
		*a = 0
	case *a == 0 && b > byDefault, *a != 0 && b > *a:
		*a = b
	}
}

func (m *merger) limits(a, b *Manifest) {
	d := new(Manifest).WithDefaults()
	larger(&a.Limits.Pids, b.Limits.Pids, d.Limits.Pids)
	larger(&a.Limits.Memory, b.Limits.Memory, d.Limits.Memory)
	larger(&a.Limits.Tmp, b.Limits.Tmp, d.Limits.Tmp)
	s, t := &a.Sandbox, &b.Sandbox
	larger(&s.Pids, t.Pids, d.Sandbox.Pids)
	larger(&s.Memory, t.Memory, d.Sandbox.Memory)
	larger(&s.Output, t.Output, d.Sandbox.Output)
	larger(&s.Tmp, t.Tmp, d.Sandbox.Tmp)
	longer(&s.Timeout, t.Timeout, d.Sandbox.Timeout)
	larger(&s.CPUWeight, t.CPUWeight, d.Sandbox.CPUWeight)
	larger(&s.OpenFiles, t.OpenFiles, d.Sandbox.OpenFiles)
	wider(&s.CPU, t.CPU)
	wider(&s.IORead, t.IORead)
	wider(&s.IOWrite, t.IOWrite)
	wider(&s.FileSize, t.FileSize)
	if t.Background.Keep != KeepNone { // jobs, written or not
		s.Background.Keep = t.Background.Keep
	}
	larger(&s.Background.Jobs, t.Background.Jobs, d.Sandbox.Background.Jobs)
	larger(&s.Background.Log, t.Background.Log, d.Sandbox.Background.Log)
	longer(&s.Background.Timeout, t.Background.Timeout, d.Sandbox.Background.Timeout)
	larger(&a.Session.Pids, b.Session.Pids, d.Session.Pids)
	wider(&a.Session.Memory, b.Session.Memory)
	wider(&a.Session.CPU, b.Session.CPU)
	larger(&a.Session.CPUWeight, b.Session.CPUWeight, d.Session.CPUWeight)
}

// wider is larger for a limit whose default is that there is none.
func wider[T Size | Percent](a *T, b T) {
	if b == 0 || *a != 0 && b > *a {
		*a = b
	}
}

// longer is larger for a time.
func longer(a *Timeout, b, byDefault Timeout) {
	x, y := *a, b
	def(&x, byDefault)
	def(&y, byDefault)
	if x != TimeoutNone && (y == TimeoutNone || y > x) {
		*a = b
	}
}

func (m *merger) sandbox(a *Sandbox, b Sandbox) {
	if b.Network == NetworkSession || a.Network == "" {
		a.Network = b.Network
	}
	// Not written means a default here, so uniting with nothing would narrow.
	if len(a.Read) > 0 || len(b.Read) > 0 {
		a.Read = (&Manifest{Sandbox: *a}).WithDefaults().Sandbox.Read
		m.list("sandbox.read", &a.Read, (&Manifest{Sandbox: b}).WithDefaults().Sandbox.Read)
	}
	m.list("sandbox.share", &a.Share, b.Share)
	m.list("sandbox.hide", &a.Hide, b.Hide)
	m.list("sandbox.freeze", &a.Freeze, b.Freeze)
	if len(a.Env.Pass) == 0 || len(b.Env.Pass) == 0 {
		a.Env.Pass, b.Env.Pass = nil, nil
	}
	m.env("sandbox.env", &a.Env, b.Env)
	m.list("sandbox.drop", &a.Drop, b.Drop)
}

// MergeLearned adds the runs of two headers up. Either may be nil.
func MergeLearned(a, b *Learned) *Learned {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	l := *a
	if b.At.After(a.At) {
		l = *b
	}
	l.Complete, l.Runs = a.Complete && b.Complete, a.Runs+b.Runs
	l.At = later(a.At, b.At)
	l.Images = mergeImages(a.Images, b.Images)
	l.Signals = mergeSignals(a.Signals, b.Signals)
	l.Peaks = mergePeaks(a.Peaks, b.Peaks)
	return &l
}

// maxCount is well within what a number of the manifest may be.
const maxCount = 1 << 30

func mergeImages(a, b []LearnedImage) []LearnedImage {
	all := slices.Clone(a)
	for _, i := range b {
		at := slices.IndexFunc(all, func(x LearnedImage) bool { return x.Path == i.Path })
		if at < 0 {
			all = append(all, i)
			continue
		}
		all[at].Runs = min(all[at].Runs+i.Runs, maxCount)
		all[at].Execs = min(all[at].Execs+i.Execs, maxCount)
		all[at].Maps = min(all[at].Maps+i.Maps, maxCount)
	}
	slices.SortFunc(all, func(a, b LearnedImage) int { return strings.Compare(a.Path, b.Path) })
	return all
}

func mergeSignals(a, b []LearnedSignal) []LearnedSignal {
	all := slices.Clone(a)
	for _, s := range b {
		at := slices.IndexFunc(all, func(x LearnedSignal) bool { return x.Name == s.Name })
		if at < 0 {
			all = append(all, s)
			continue
		}
		all[at].Sent = min(all[at].Sent+s.Sent, maxCount)
	}
	slices.SortFunc(all, func(a, b LearnedSignal) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func mergePeaks(a, b *LearnedPeaks) *LearnedPeaks {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &LearnedPeaks{Command: a.Command.most(b.Command), Orchestrator: a.Orchestrator.most(b.Orchestrator)}
}

func (u LearnedUse) most(v LearnedUse) LearnedUse {
	return LearnedUse{Pids: max(u.Pids, v.Pids), Memory: max(u.Memory, v.Memory), CPU: max(u.CPU, v.CPU), Time: max(u.Time, v.Time)}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
