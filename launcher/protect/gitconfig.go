package protect

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of a configuration file that is read, and of one that a session made; git's own are a few hundred bytes.
const (
	maxConfig    = 1 << 20
	maxNewConfig = 64 << 10
)

// configPaths are the values of a git configuration that name what must be protected beside it.
type configPaths struct {
	hooks    []string // core.hooksPath, every value: which one wins depends on files we may not see
	includes []string // include.path and includeIf.*.path, whatever the condition
	worktree []string // core.worktree, every value
	format   string   // extensions.objectFormat
	version  bool     // there is a core.repositoryFormatVersion: without one git passes over all extensions
}

// configs are the configurations that were read already, by inode: one holds for many worktrees, and may have many names.
type configs map[configKey]configPaths

type configKey struct {
	dev, ino uint64
	size     int64
	ctime    unix.Timespec
}

// read is readConfig of a file, once.
func (c configs) read(t tree, rel string) (configPaths, error) {
	st, err := t.lstat(rel)
	if err != nil {
		return configPaths{}, err
	}
	key := configKey{st.Dev, st.Ino, st.Size, st.Ctim}
	if paths, ok := c[key]; ok {
		return paths, nil
	}
	text, err := t.readFile(rel, maxConfig)
	if err != nil {
		return configPaths{}, err
	}
	if len(c) >= maxConfigs {
		clear(c)
	}
	c[key] = readConfig(string(text))
	return c[key], nil
}

// readConfig picks the paths out of a configuration file (git-config(1), "Syntax"). It is more lenient than git: what
// git refuses to read protects nothing and harms nothing.
func readConfig(text string) configPaths {
	var c configPaths
	section := ""
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for len(text) > 0 {
		text = strings.TrimLeft(text, " \t\n\r\v\f\ufeff")
		switch {
		case text == "":
		case text[0] == '#' || text[0] == ';':
			_, text, _ = strings.Cut(text, "\n")
		case text[0] == '[':
			section, text = sectionName(text[1:])
		default:
			var key, value string
			key, value, text = keyValue(text)
			switch {
			case section == "core" && key == "hookspath":
				c.hooks = append(c.hooks, value)
			case section == "core" && key == "worktree":
				c.worktree = append(c.worktree, value)
			case section == "extensions" && key == "objectformat":
				c.format = value
			case section == "core" && key == "repositoryformatversion":
				c.version = true
			case (section == "include" || section == "includeif") && key == "path":
				c.includes = append(c.includes, value)
			}
		}
	}
	return c
}

// sectionName reads up to the closing bracket; the quoted subsection, which may hold brackets, is dropped.
func sectionName(text string) (section, rest string) {
	var name []byte
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			return strings.ToLower(string(name)), text[i:]
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ']' && !quoted:
			return strings.ToLower(string(name)), text[i+1:]
		case !quoted && c != ' ' && c != '\t':
			name = append(name, c)
		}
	}
	return "", ""
}

// keyValue reads one "key = value" with quotes, escapes, comments and continued lines.
func keyValue(text string) (key, value, rest string) {
	end := strings.IndexAny(text, "=\n#;")
	if end < 0 {
		return strings.ToLower(strings.TrimSpace(text)), "", ""
	}
	key = strings.ToLower(strings.TrimSpace(text[:end]))
	if text[end] != '=' {
		_, rest, _ = strings.Cut(text[end:], "\n")
		return key, "", rest
	}
	text = strings.TrimLeft(text[end+1:], " \t")
	var b strings.Builder
	quoted, keep := false, 0 // keep: length up to the last byte that is not trailing white space
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\n':
			return key, b.String()[:keep], text[i+1:]
		case c == '\\' && i+1 < len(text):
			i++
			if text[i] != '\n' {
				b.WriteByte(unescape(text[i]))
				keep = b.Len()
			}
			continue
		case c == '"':
			quoted = !quoted
			keep = b.Len()
			continue
		case (c == '#' || c == ';') && !quoted:
			_, rest, _ = strings.Cut(text[i:], "\n")
			return key, b.String()[:keep], rest
		}
		b.WriteByte(c)
		if quoted || (c != ' ' && c != '\t') {
			keep = b.Len()
		}
	}
	return key, b.String()[:keep], ""
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	}
	return c
}
