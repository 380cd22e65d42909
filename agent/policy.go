package agent

import (
	"path"
	"slices"
	"strings"
)

// Policy is what an errno is explained by. It is data: the paths as they are inside of the view.
type Policy struct {
	Exec      []string          `json:"exec"`      // pinned: may be executed
	Libraries []string          `json:"libraries"` // may be mapped executable
	Loaders   []string          `json:"loaders"`   // those of Exec that are dynamic loaders
	Needs     map[string]string `json:"needs"`     // what the kernel starts a pinned image with: its interpreter, its loader
	Routed    []string          `json:"routed"`    // appear in the view as the client
	Links     map[string]string `json:"links"`     // folders that are symbolic links: /bin to /usr/bin
	Workspace string            `json:"workspace"`
	State     string            `json:"state"`
	Scratch   []string          `json:"scratch"` // other folders that can be written: /tmp, /dev/shm
	Protected map[string]string `json:"-"`       // names that nobody may write, absolute, with their doors; found when tracing has begun
	Layers    []string          `json:"layers"`  // those that hold in this session: landlock, view, seccomp, net, …
	Client    string            `json:"client"`  // how a command is run instead; for hints
	Stage     []string          `json:"stage"`   // programs that the orchestrator begins as; the first tries the doors
}

func (p *Policy) holds(layer string) bool { return slices.Contains(p.Layers, layer) }

// resolve makes a path absolute and clean as far as data can: symbolic links that it does not know stay.
func (p *Policy) resolve(e *Event) string {
	asked := e.Asked.Text
	switch {
	case asked == "" || e.Asked.Unreadable:
		return e.Base.Text
	case !strings.HasPrefix(asked, "/"):
		if e.Base.Text == "" || e.Base.Unreadable || e.Base.Truncated {
			return ""
		}
		asked = e.Base.Text + "/" + asked
	}
	clean := path.Clean(asked)
	for _, own := range ownRoots {
		if rest, ok := below(clean, own); ok {
			clean = path.Join("/", rest)
		}
	}
	for from, to := range p.Links {
		if rest, ok := below(clean, from); ok {
			return path.Join(to, rest)
		}
	}
	return clean
}

// ownRoots lead a process to where it is.
var ownRoots = []string{"/proc/self/root", "/proc/thread-self/root"}

// below says whether name is dir or lies in it, and what follows.
func below(name, dir string) (rest string, ok bool) {
	if dir == "" || dir == "/" {
		return "", false
	}
	rest, ok = strings.CutPrefix(name, dir)
	return rest, ok && (rest == "" || rest[0] == '/')
}

func (p *Policy) writable(name string) bool {
	for _, dir := range append([]string{p.Workspace, p.State}, p.Scratch...) {
		if _, ok := below(name, dir); ok {
			return true
		}
	}
	return false
}

func (p *Policy) protected(name string) bool { return p.protects(name) != "" }

// protects is the door of the protected name that name is or lies in, the innermost one's. Empty: none.
func (p *Policy) protects(name string) (door string) {
	longest := 0
	for dir, d := range p.Protected {
		if _, ok := below(name, dir); ok && len(dir) > longest {
			door, longest = d, len(dir)
		}
	}
	return door
}

// missing is what a pinned image needs to start and has not got: its interpreter, or that one's own, or a loader.
func (p *Policy) missing(image string) string {
	for range maxInterpreters {
		need, has := p.Needs[image]
		switch {
		case !has:
			return ""
		case !slices.Contains(p.Exec, need) && !slices.Contains(p.Routed, need):
			return need
		}
		image = need
	}
	return ""
}

// maxInterpreters is how many images the kernel starts in a row for one exec (fs/exec.c, exec_binprm).
const maxInterpreters = 6

// loader says whether an image is a dynamic loader that was run by name.
func (p *Policy) loader(image string) bool {
	base := path.Base(image)
	return slices.Contains(p.Loaders, image) || strings.HasPrefix(base, "ld-linux") || strings.HasPrefix(base, "ld-musl") || base == "ld.so"
}
