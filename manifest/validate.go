package manifest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Validate checks what the types cannot say: names, paths, hashes, and parts that contradict each other. The error is
// an *Error without a position. Parse calls it; a manifest built in memory is checked by calling it.
func (m *Manifest) Validate() error {
	c := &checker{state: m.State != nil}
	m.check(c, false)
	return c.result()
}

// checker keeps the first complaint. Checks go on after it, which costs nothing and spares every caller a branch.
type checker struct {
	first *Error
	state bool // there is a state folder, so {{state}} means something
}

func (c *checker) fail(key, text string) {
	if c.first == nil {
		c.first = &Error{Key: key, Text: text}
	}
}

func (c *checker) result() error {
	if c.first == nil {
		return nil
	}
	return c.first
}

// check validates a whole manifest, or the fragment that a profile is: one without what a host fills in.
func (m *Manifest) check(c *checker, fragment bool) {
	c.oneOf("recvmsg", string(m.Recvmsg), string(RecvmsgAllow), string(RecvmsgDeny))
	if m.Version != Version && !(fragment && m.Version == 0) {
		c.fail("version", found(missingOr(m.Version != 0, strconv.Itoa(m.Version)), strconv.Itoa(Version)))
	}
	if !fragment || m.Name != "" {
		c.name("name", m.Name)
	}
	if m.Profile != "" {
		c.name("profile", m.Profile)
	}
	if !fragment {
		if len(m.Command) == 0 {
			c.fail("command", found("nothing", "a list that begins with the absolute path of a program"))
		} else {
			c.path("command[0]", m.Command[0])
		}
		if len(m.Exec) == 0 {
			c.fail("exec", found("nothing", "at least the program itself"))
		}
	}
	c.words("command", m.Command)
	c.words("args", m.Args)
	c.images(m)
	c.paths("route", m.Route)
	for i, p := range m.Route {
		if slices.ContainsFunc(m.Exec, func(e Exec) bool { return e.Path == p }) {
			c.fail(at("route", i), found(quote(p)+", which exec lists too", "each path in one of the two"))
		}
	}
	c.trees("read", m.Read)
	c.stateFolder(m.State, fragment)
	c.workspace(m.Workspace)
	c.endpoints(m.Connect)
	c.env("env", m.Env, false)
	if m.Shell != "" {
		c.path("shell", m.Shell)
	}
	c.pids("limits.pids", m.Limits.Pids)
	c.sandbox(&m.Sandbox)
	c.budget("session", m.Session)
	c.envNames("secrets.env", m.Secrets.Env, false)
	c.oneOf("secrets.rules", string(m.Secrets.Rules), string(RulesDefault), string(RulesAll), string(RulesNone))
	c.oneOf("secrets.escapes", string(m.Secrets.Escapes), string(EscapesPass), string(EscapesNeutralise))
	c.oneOf("secrets.binary", string(m.Secrets.Binary), string(BinaryPass), string(BinaryRefuse))
	seen := map[string]string{}
	for i, f := range m.Integrity {
		c.file(at("integrity", i), f, seen)
	}
	if m.Learned != nil && m.Learned.Runs < 0 {
		c.fail("learned.runs", found(strconv.Itoa(m.Learned.Runs), "a whole number above 0"))
	}
}

func missingOr(there bool, what string) string {
	if there {
		return what
	}
	return "nothing"
}

func at(key string, i int) string { return key + "[" + strconv.Itoa(i) + "]" }

// nameText keeps a name usable as a file name, a cgroup and part of a socket path, and unlike an option.
var nameText = regexp.MustCompile(`^[a-z0-9_][a-z0-9._-]{0,47}$`)

func (c *checker) name(key, name string) {
	if !nameText.MatchString(name) {
		c.fail(key, found(missingOr(name != "", quote(name)), "1 to 48 of a-z, 0-9, '.', '_' and '-', not beginning with '.' or '-'"))
	}
}

func (c *checker) oneOf(key, value string, words ...string) {
	if value != "" && !slices.Contains(words, value) {
		c.fail(key, found(quote(value), strings.Join(words, " or ")))
	}
}

// words checks arguments: anything that execve takes.
func (c *checker) words(key string, words []string) {
	for i, w := range words {
		c.text(at(key, i), w)
	}
}

// text is anything that both execve and the document can hold.
func (c *checker) text(key, s string) {
	if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
		c.fail(key, found(quote(s), "UTF-8 text without a NUL"))
	}
}

func (c *checker) images(m *Manifest) {
	seen := map[string]string{}
	for i, e := range m.Exec {
		key := at("exec", i)
		c.file(key, File{e.Path, e.SHA256}, seen)
		if e.Role == "" {
			c.fail(key+".role", found("nothing", roles))
		}
		if !slices.Contains([]Role{RoleProgram, RoleScript, RoleInterpreter, RoleLoader}, e.Role) {
			c.fail(key+".role", found(quote(string(e.Role)), roles))
		}
	}
	for i, f := range m.Libraries {
		c.file(at("libraries", i), f, seen)
	}
}

const roles = "program, script, interpreter or loader"

var hashText = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (c *checker) file(key string, f File, seen map[string]string) {
	c.path(key+".path", f.Path)
	if !hashText.MatchString(f.SHA256) {
		c.fail(key+".sha256", found(missingOr(f.SHA256 != "", quote(f.SHA256)), "64 lower-case hexadecimal digits"))
	}
	if first, twice := seen[f.Path]; twice {
		c.fail(key+".path", found(quote(f.Path)+" a second time", "it once (first as "+first+")"))
	}
	seen[f.Path] = key
}

func (c *checker) workspace(w Workspace) {
	if w.Path != "" && w.Path != "." {
		c.path("workspace.path", w.Path)
	}
	c.oneOf("workspace.orchestrator", string(w.Orchestrator), string(AccessRead), string(AccessWrite))
	c.oneOf("workspace.protect", string(w.Protect), string(ProtectDefault), string(ProtectNone))
	c.subpaths("workspace.protect_extra", w.ProtectExtra)
}

// maxPids is PID_MAX_LIMIT of a 64-bit kernel: more is not a limit.
const maxPids = 1 << 22

func (c *checker) pids(key string, n int) { c.atMost(key, n, maxPids) }

// What the kernel takes as a weight (cgroup-v2, cpu.weight), what it takes as RLIMIT_NOFILE by default (fs.nr_open), and what
// one sharness-bashd keeps of jobs within its own memory.
const (
	maxWeight    = 10000
	maxOpenFiles = 1 << 20
	maxJobs      = 32
	maxLog       = 4 * MiB
)

// With less no command comes to its first instruction: pid 1 and what it starts.
const (
	leastPids   = 3
	leastMemory = 2 * MiB
)

// room is pids and memory of what commands run in. 0 is the default.
func (c *checker) room(key string, pids int, memory Size) {
	if pids < 0 || pids > maxPids || 0 < pids && pids < leastPids {
		c.fail(key+".pids", found(strconv.Itoa(pids), "a whole number from "+strconv.Itoa(leastPids)+" to "+strconv.Itoa(maxPids)))
	}
	if 0 < memory && memory < leastMemory {
		c.fail(key+".memory", found(memory.String(), "at least "+leastMemory.String()))
	}
}

func (c *checker) atMost(key string, n, max int) {
	if n < 0 || n > max {
		c.fail(key, found(strconv.Itoa(n), "a whole number from 1 to "+strconv.Itoa(max)))
	}
}

func (c *checker) budget(key string, b Budget) {
	c.room(key, b.Pids, b.Memory)
	c.atMost(key+".cpu_weight", b.CPUWeight, maxWeight)
}

func (c *checker) sandbox(s *Sandbox) {
	c.room("sandbox", s.Pids, s.Memory)
	if s.Timeout < 0 && s.Timeout != TimeoutNone {
		c.fail("sandbox.timeout", found(s.Timeout.String(), wantTimeout))
	}
	c.atMost("sandbox.cpu_weight", s.CPUWeight, maxWeight)
	c.atMost("sandbox.open_files", s.OpenFiles, maxOpenFiles)
	c.oneOf("sandbox.background.keep", string(s.Background.Keep), string(KeepNone), string(KeepJobs))
	c.atMost("sandbox.background.jobs", s.Background.Jobs, maxJobs)
	if s.Background.Log > maxLog {
		c.fail("sandbox.background.log", found(s.Background.Log.String(), "at most "+maxLog.String()))
	}
	if s.Background.Timeout < 0 && s.Background.Timeout != TimeoutNone {
		c.fail("sandbox.background.timeout", found(s.Background.Timeout.String(), wantTimeout))
	}
	c.oneOf("sandbox.network", string(s.Network), string(NetworkNone), string(NetworkSession))
	c.trees("sandbox.read", s.Read)
	c.subpaths("sandbox.share", s.Share)
	if len(s.Share) > 0 && !c.state {
		c.fail("sandbox.share", found("a share without a state folder", "state beside it"))
	}
	c.subpathsBelow("sandbox.hide", s.Hide, s.Share)
	c.subpathsBelow("sandbox.freeze", s.Freeze, s.Share)
	c.env("sandbox.env", s.Env, true)
	c.envNames("sandbox.drop", s.Drop, true)
}
