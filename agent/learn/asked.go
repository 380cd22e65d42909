package learn

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sharness/sharness/manifest"
)

// WantName is an attempt to look a name up, WantWide one to read a folder that holds more than a package; the others are
// package agent's.
const (
	WantName = "name"
	WantWide = "wide"
)

// What begins a remark about something that was asked for and not had: what could be added to the manifest follows as the
// manifest would have it, or why nothing can.
const (
	couldAdd = "could add: "
	askedFor = "asked for: "
)

// secrets are parts of paths where keys lie. What an agent wants of them is told, and not proposed.
var secrets = []string{"/.ssh/", "/.gnupg/", "/.aws/", "/.azure/", "/.kube/", "/.docker/", "/.config/gcloud/", "/.config/gh/", "/.netrc/", "/.git-credentials/", "/.password-store/", "/etc/shadow/", "/etc/gshadow/", "/etc/ssh/", "/.pgpass/", "/.npmrc/", "/.pypirc/"}

// asked says of each attempt what would allow it. The attempts are those of which the host has something.
func asked(attempts []Attempt, network bool) []string {
	var all []string
	for _, a := range attempts {
		all = append(all, ask(a, network))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func ask(a Attempt, network bool) string {
	by := ""
	if len(a.By) > 0 {
		by = ", by " + list(a.By)
	}
	target := word(a.Target)
	switch a.Want {
	case "read":
		if slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(a.Target+"/", s) }) {
			return askedFor + "to read " + target + by + ": keys lie there; better that it cannot"
		}
		return couldAdd + "read: [" + target + "]" + because("wanted", a.By)
	case WantWide:
		return askedFor + "to read the folder " + target + by + ": it holds more than one program's files; name what is needed of it"
	case "exec":
		return askedFor + "to run " + target + by + ": it is not shown; list it under route, or with its folder under exec and read"
	case "write":
		return askedFor + "to write in " + target + by + ": nothing but state and workspace can be written; lead it there by its settings"
	case WantName:
		return couldAdd + "connect: [{name: " + target + ", port: 443}]" + because("looked up; the port is a guess", a.By)
	}
	return askEndpoint(a, by, network)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9/@][A-Za-z0-9/._+:@-]*$`)

// word writes a name that may be anybody's as one word of the manifest, and so that it does not end the line.
func word(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

func because(what string, by []string) string {
	if len(by) == 0 {
		return " # " + what
	}
	return " # " + what + " by " + list(by)
}

// askEndpoint is about "tcp ADDRESS:PORT" and its like.
func askEndpoint(a Attempt, by string, network bool) string {
	proto, to, _ := strings.Cut(a.Target, " ")
	host, port := splitPort(to)
	named := host != "" && (manifest.Loopback(host) || !isAddress(host))
	switch {
	case proto == "tcp" && named:
		return couldAdd + "connect: [{name: " + word(host) + ", port: " + port + "}]" + because("tried", a.By)
	case proto == "tcp" && network:
		return askedFor + "to reach " + word(to) + by + ": an address can not be listed, only a name, and no name that was looked up led there"
	case proto == "tcp":
		return askedFor + "to reach " + word(to) + by + ": an address can not be listed, only a name; learn with --learn-network to see whether it has one"
	case proto == "unix":
		return askedFor + "to reach the socket " + word(to) + by + ": what serves it is outside; nothing allows that"
	}
	return askedFor + "to reach " + strings.TrimSpace(proto+" "+word(to)) + by + ": nothing but TCP to what connect lists is carried"
}

func splitPort(to string) (host, port string) {
	i := strings.LastIndexByte(to, ':')
	if i < 0 {
		return "", ""
	}
	return strings.Trim(to[:i], "[]"), to[i+1:]
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
