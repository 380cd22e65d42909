package launcher

import (
	"slices"
	"strings"

	"github.com/sharness/sharness/bashserver"
)

// findSecrets finds the values of the names in secrets.env: what the caller has, and what the orchestrator gets, since a
// manifest may set the value itself. A name without a value is no error, because an agent may be logged in by other means;
// it is said, because sudo takes variables away.
func (r *run) findSecrets() error {
	m := r.s.Manifest
	var unset []string
	for _, name := range m.Secrets.Env {
		set, err := r.s.expand(m.Env.Set[name])
		if err != nil {
			return refusef("env.set %s: %w", name, err)
		}
		values := []string{set}
		for _, kv := range r.o.Env {
			if n, v, _ := strings.Cut(kv, "="); n == name && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
		if len(values) == 0 {
			unset = append(unset, name)
		}
		for _, v := range values {
			if len(v) < bashserver.MinSecret {
				return refusef("secrets.env %s: its value is shorter than %d bytes, which cannot be told from other text; give it a longer one, or take the name out of the manifest",
					name, bashserver.MinSecret)
			}
			r.secrets = append(r.secrets, bashserver.Secret{Name: name, Value: v})
		}
	}
	if len(unset) > 0 {
		r.o.Notice("secrets.env: " + strings.Join(unset, ", ") + ": not set, so there is no value to take out of output (sudo keeps a variable with --preserve-env=NAME)")
	}
	return nil
}
