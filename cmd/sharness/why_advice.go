package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/launcher/resolve"
)

// advice is one line of the manifest that would change an event, with the command that writes it, and whether to. Without
// a line nothing in the manifest does.
type advice struct {
	line    string
	command string // arguments of manifest allow
	wise    string
}

// allow is the command for a name, where that can be typed.
func allow(flag, name string) string {
	if event.Escape(name) != name {
		return ""
	}
	return flag + " " + pin.Quote(name)
}

// adviseOn says what could be done about an event, in words that are safe for a terminal. It is pure: the manifest may have changed since.
func adviseOn(e *event.Event, workspace string) []advice {
	if e.Phase == "probe" {
		return []advice{{wise: "nothing to do: sharness tried the door itself at the start, and found it closed"}}
	}
	if !e.Type.Denial() {
		if e.Type == event.SecretRedacted && e.Data["by"] == "rule" {
			return []advice{{"secrets: {rules: none}", "", "leave it: what a command printed had the shape of a token"}}
		}
		if e.Type == event.LimitHit {
			return []advice{adviseLimit(e)}
		}
		if wise := open[e.Cause]; e.Type == event.LayerOpen && wise != "" {
			return []advice{{wise: wise}}
		}
		return []advice{reports[e.Type]}
	}
	name := e.Blocker
	if name == "" && e.Target != nil {
		name = e.Target.Resolved
		if name == "" {
			name = e.Target.Asked
		}
	}
	inside := workspace != "" && pin.Below(name, workspace)
	switch e.Door {
	case "exec-direct":
		if e.Cause == "unknown" {
			return []advice{{wise: "nothing in the manifest changes it: no layer of the session refused it. The program may have a filter of its own"}}
		}
		return adviseExec(name)
	case "exec-ldso", "exec-inject":
		if inside || name == "" || writableScratch(name) {
			return []advice{{wise: "no line allows it: what the session can write is never mapped executable. Install the module where only you can write"}}
		}
		return []advice{{"libraries: [{path: " + yamlText(name) + ", sha256: …}]", allow("--library", name),
			"yes, if it belongs to the agent's own installation; it then runs with the agent's reach"}}
	case "net-host":
		return []advice{adviseHost(e)}
	case "file-config", "file-meta":
		if inside {
			return []advice{{"workspace: {orchestrator: write}", "--workspace write",
				"yes, for an agent that edits files itself; commands of the bash-server always may"}}
		}
	case "file-secret":
		if dir := path.Dir(name); strings.HasPrefix(name, "/") && dir != "/" && !inside {
			return []advice{{"read: [" + yamlText(dir) + "]", allow("--read", dir),
				"only if nothing in that folder is secret: the agent sends what it reads to its model"}}
		}
	}
	if a, known := answers[e.Door]; known {
		return []advice{a}
	}
	return []advice{{wise: "nothing in the manifest changes it: it belongs to no door, and is what any program without rights is told"}}
}

// shells are what routes are for.
var shells = []string{"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "ash"}

func adviseExec(name string) []advice {
	if name == "" {
		return []advice{{wise: "which file was meant is not known: nothing to be added"}}
	}
	route := advice{"route: [" + yamlText(name) + "]", allow("--route", name),
		"yes: the agent then gets the bash-server's client there, and each call runs in a sandbox of its own"}
	pinned := advice{"exec: [{path: " + yamlText(name) + ", sha256: …, role: program}]", allow("--exec", name),
		"only if the agent itself must start it: it runs with the agent's reach, beside the bash-server"}
	// The name is whatever the program passed: it need not be one that anybody has a use for.
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		route.wise = "no: this host has no such file"
		pinned.wise = route.wise
	} else if slices.Contains(shells, path.Base(name)) {
		pinned.wise = "no: what runs in a shell of the agent's own no longer goes through the bash-server"
	}
	return []advice{route, pinned}
}

func writableScratch(name string) bool {
	return slices.ContainsFunc([]string{"/tmp", "/var/tmp", "/dev/shm"}, func(dir string) bool { return pin.Below(name, dir) })
}

func adviseHost(e *event.Event) advice {
	wise := "only if you trust that service with everything the agent can read. The log has the address: the line wants the name that the agent meant"
	port := "443"
	if e.Target != nil {
		if _, addr, ok := strings.Cut(e.Target.Asked, " "); ok {
			if _, p, err := net.SplitHostPort(addr); err == nil {
				port = event.Escape(p)
			}
		}
	}
	return advice{"connect: [{name: HOST, port: " + port + ", tls: sni}]", "--connect HOST:" + port, wise}
}

// limitKeys are what data.key of a limit.hit may be.
var limitKeys = regexp.MustCompile(`^(limits|sandbox|sandbox\.background|session)\.[a-z_]+$`)

// adviseLimit writes the key of a limit as a line. A limit of the relay's has none.
func adviseLimit(e *event.Event) advice {
	key, _ := e.Data["key"].(string)
	if !limitKeys.MatchString(key) {
		return advice{wise: "nothing in the manifest changes it: the limit is sharness's own, and is there for what else goes that way"}
	}
	whose := "the command was"
	if strings.HasPrefix(key, "limits.") {
		whose = "the agent itself was"
	}
	return advice{strings.ReplaceAll(key, ".", ": {") + ": …" + strings.Repeat("}", strings.Count(key, ".")), "",
		"yes, if " + whose + " right to need more"}
}

// yamlText quotes a name for a line of YAML, so that it can be neither a key nor another list.
func yamlText(name string) string {
	return "\"" + strings.ReplaceAll(event.Escape(name), "\"", "\\\"") + "\""
}

func never(why string) advice { return advice{wise: "no line allows it, and none should: " + why} }

// answers are what is to be said of a door whatever the target was.
var answers = map[string]advice{
	"exec-workspace": never("what the session can write is never executed by the agent. sharness-bash -c runs it, in a sandbox"),
	"exec-memfd":     {"memfd: true", "", "no, unless the agent cannot work without: it opens exec-memfd and, as far as seccomp held it, exec-ldso"},
	"exec-scm":       {"recvmsg: allow", "", "only if the agent receives descriptors to work at all: a command could hand it one"},
	"exec-abi":       never("an ordinary program makes no call that way; it is how one gets past filters that look at numbers"),
	"exec-interp":    never("the code may run in memory, and reaches no more than the program that loaded it"),
	"exec-swap":      never("a pinned file is what its hash says. Update it outside of a session, then: sudo sharness manifest pin"),
	"exec-env":       never("the environment is an allowlist: env.pass and env.set"),
	"exec-applet":    never("pin another file that is one program only"),
	"sig":            never("processes outside of the session are not the agent's to reach"),
	"ptrace":         never("processes outside of the session are not the agent's to read"),
	"pid1":           never("pid 1 inside holds the walls of the session"),
	"ns":             never("in a namespace of its own the agent could mount, and so get around the view"),
	"file-suid":      never("such a file would run with your rights, whoever starts it"),
	"setid":          never("the session has one uid and no capability"),
	"kernel":         never("no agent needs the call, and each has opened a kernel before"),
	"net-mptcp":      never("Landlock's rules on TCP do not see it"),
	"net-tfo":        never("it connects without connect, which is what the rules look at"),
	"net-udp":        never("names of the listed endpoints resolve without DNS, and nothing else is reached"),
	"net-family":     never("such sockets reach the kernel or the hypervisor"),
	"net-listen":     never("in its own network namespace nobody would come; serve from a command, with sandbox.network: session"),
	"unix-path":      never("a daemon's socket is as good as its rights: docker's is root's"),
	"net-sni":        {"connect: [{name: HOST, port: 443, tls: sni}]", "--connect HOST:443", "only with the name that the agent asked for, and only if you trust it"},
	"net-tenant":     never("who may speak to a service may speak to it as anyone"),
	"unix-abstract":  never("such sockets belong to processes outside"),
	"file-config":    never("what the host, or the next session, reads as configuration runs later with other rights"),
	"file-git":       {"workspace: {protect: none}", "", "no: what git and editors run lies there. Change it yourself, outside of a session; sharness git-config does it during one"},
	"file-meta":      never("the file is only to be read here"),
	"file-lease":     never("leases on your files let the agent hold up your own programs"),
	"file-fifo":      never("a FIFO or socket where your tools look makes them wait, or read from the agent. $TMPDIR takes them"),
	"file-link":      never("it would lead out of the folder that both sides see"),
	"core-helper":    never("a crash would start the host's core handler as root"),
	"file-secret":    never("keys, devices and what belongs to other users lie there"),
	"file-proc":      never("one write there can be root on the host"),
	"orch-bomb":      {"limits: {pids: …, memory: …}", "", "yes, if the agent's own work needs more; what fills up is the host's"},
	"cg-escape":      never("the group bounds what the session takes of the host"),
	"inherit-fd":     never("a descriptor from before the walls goes past them"),
	"inherit-env":    {"env: {pass: [NAME]}", "--env NAME", "only if the value is no secret: the agent sends what it reads to its model"},
	"tty":            never("it types into your terminal"),
	"tty-answer":     never("it would be typed into your shell when the session has ended"),
	"log-inject":     never("names are written so that nothing obeys them"),
	"srv-bytes":      never("the request was none that a client of sharness sends"),
	"srv-fd":         never("the bash-server takes descriptors 0 to 2 of its own client, and nobody else's"),
	"cmd-reach":      never("a command sees the workspace and itself"),
	"cmd-bomb":       {"sandbox: {pids: …, memory: …, timeout: …}", "", "yes, if your builds need more"},
	"cmd-poison":     never("what later commands trust is not for an earlier one to change"),
	"cmd-linger":     never("what a command leaves running ends with it; sandbox.network: session lets several speak to one another"),
	"cmd-output":     never("a secret is taken out of what a command prints"),
}

// reports are events that refuse nothing.
var reports = map[event.Type]advice{
	event.ExecRouted:       {wise: "nothing was refused: a routed program ran in a sandbox of the bash-server"},
	event.NetFailed:        {wise: "nothing was refused: the endpoint is allowed, and did not answer"},
	event.RepoCreated:      {wise: "nothing was refused: look at the hooks and the configuration of the new repository before git runs there"},
	event.CommandStart:     {wise: "nothing was refused"},
	event.CommandEnd:       {wise: "nothing was refused"},
	event.SecretRedacted:   {"secrets: {env: […]}", "", "leave it: a value that is listed was taken out of what a command printed"},
	event.LayerOpen:        {wise: "this layer does not hold here; sharness doctor says what the host lacks, and which doors that leaves to others"},
	event.LayerApplied:     {wise: "nothing was refused: this layer holds"},
	event.StartRefused:     {wise: "the session did not start what was asked for, and nothing has changed"},
	event.FileQuarantined:  {"workspace: {protect: none}", "", "no: look at what was taken away, and make the file yourself if you want it"},
	event.IntegrityChanged: {"integrity: [{path: …, sha256: …}]", "", "only if you changed the file; who else did could change others"},
	event.SessionStart:     {wise: "nothing was refused"},
	event.SessionEnd:       {wise: "nothing was refused"},
	event.EventsLost:       {wise: "the log is not whole here: so many events were counted and not written. What was refused stayed refused"},
	event.Heartbeat:        {wise: "nothing was refused: the log says that it is alive"},
}

// open says what it means that a session began with a door open, by who allowed it.
var open = map[string]string{
	resolve.AllowedByDesign:   "nothing to do: no layer of any session closes this door; its page says what it means and what bounds it",
	resolve.AllowedByManifest: "the manifest's own word opened it: memfd: true",
	resolve.AllowedByFlag:     "--allow-open opened it: no layer closes it on this host; sharness doctor says what the host lacks",
}
