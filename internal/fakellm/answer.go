package fakellm

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// answer is a turn on its way to the agent that asked.
type answer struct {
	req   request
	turn  Turn
	n     int // number of the request
	turnN int
	conv  int
}

func (a answer) id(prefix string) string { return fmt.Sprintf("%s_%d", prefix, a.n) }

// callID is the same for each telling of a turn, so that Server.Result finds a call whatever was retried.
func (a answer) callID(call int) string { return callID(a.conv, a.turnN, call) }

func callID(conv, turn, call int) string { return fmt.Sprintf("toolu_c%dt%dn%d", conv, turn, call) }

// input is never null: agents refuse a call without arguments.
func (c Call) input() map[string]any {
	if c.Input == nil {
		return map[string]any{}
	}
	return c.Input
}

func (c Call) inputText() string {
	text, err := json.Marshal(c.input())
	if err != nil {
		panic("fakellm: a script's input came from JSON and does not go back: " + err.Error())
	}
	return string(text)
}

func writeJSON(w http.ResponseWriter, status int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(o) //nolint:errcheck // an agent that hung up needs no answer
}

func writeStream(w http.ResponseWriter, a answer, d dialect, done bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w).Flush
	d.stream(a, func(name string, o object) {
		data, err := json.Marshal(o)
		if err != nil {
			panic("fakellm: event does not encode: " + err.Error())
		}
		if name != "" {
			fmt.Fprintf(w, "event: %s\n", name)
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
		flush() //nolint:errcheck // as above
	})
	if done {
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}
