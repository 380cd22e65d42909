package event

import "strings"

// Cut ends a text of which there was more.
const Cut = "…"

// commLen is the longest name of a process: a longer one was cut by the kernel.
const commLen = 15

// Rewrite puts what f makes of them in the place of the texts of e that come from outside: names, paths, sentences, Data.
// The words of the schema stay. cut says that s may be the beginning of a longer text.
func (e *Event) Rewrite(f func(s string, cut bool) string) {
	text := func(s string) string {
		if whole, found := strings.CutSuffix(s, Cut); found {
			return f(whole, true) + Cut
		}
		return f(s, false)
	}
	name := func(s string) string { return f(s, len(s) >= commLen) }
	e.Blocker, e.Detail = text(e.Blocker), text(e.Detail)
	if e.Process != nil {
		e.Process.Comm, e.Process.Exe = name(e.Process.Comm), text(e.Process.Exe)
	}
	for i, s := range e.Ancestors {
		e.Ancestors[i] = name(s)
	}
	if t := e.Target; t != nil {
		for _, s := range []*string{&t.Asked, &t.Resolved, &t.Old} {
			if whole, found := strings.CutSuffix(*s, Cut); found || t.Truncated {
				*s = f(whole, true) + (*s)[len(whole):]
				continue
			}
			*s = f(*s, false)
		}
	}
	if e.Hint != nil {
		e.Hint.Person, e.Hint.Model = text(e.Hint.Person), text(e.Hint.Model)
	}
	rewriteData(e.Data, text)
}

func rewriteData(data map[string]any, text func(string) string) {
	for k, v := range data {
		data[k] = rewriteValue(v, text)
	}
}

func rewriteValue(v any, text func(string) string) any {
	switch v := v.(type) {
	case string:
		return text(v)
	case []any:
		for i := range v {
			v[i] = rewriteValue(v[i], text)
		}
	case map[string]any:
		rewriteData(v, text)
	}
	return v
}
