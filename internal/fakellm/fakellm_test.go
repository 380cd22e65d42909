package fakellm

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

// Each dialect's request carries one finished turn, whose result must be found, and must be given the second turn.
var dialectCases = []struct {
	name, path, request string
	want                []string
}{
	{
		"anthropic", "/v1/messages",
		`{"model":"m","stream":STREAM,"tools":[{"name":"Bash"}],"messages":[{"role":"user","content":"go"},
		  {"role":"assistant","content":[{"type":"tool_use","id":"toolu_c0t0n0","name":"Bash","input":{}}]},
		  {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_c0t0n0","content":[{"type":"text","text":"job 77"}]}]}]}`,
		[]string{`"tool_use"`, `toolu_c0t1n0`, `stop 77`},
	},
	{
		"responses", "/v1/responses",
		`{"model":"m","stream":STREAM,"tools":[{"type":"function","name":"Bash"}],"input":[
		  {"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]},
		  {"type":"reasoning"},{"type":"function_call","call_id":"toolu_c0t0n0","name":"Bash","arguments":"{}"},
		  {"type":"function_call_output","call_id":"toolu_c0t0n0","output":"job 77"}]}`,
		[]string{`"function_call"`, `toolu_c0t1n0`, `stop 77`},
	},
	{
		"chat", "/v1/chat/completions",
		`{"model":"m","stream":STREAM,"tools":[{"type":"function","function":{"name":"Bash"}}],"messages":[
		  {"role":"user","content":"go"},{"role":"assistant","content":null},
		  {"role":"tool","tool_call_id":"toolu_c0t0n0","content":"job 77"}]}`,
		[]string{`"tool_calls"`, `toolu_c0t1n0`, `stop 77`},
	},
	{
		"gemini", "/v1beta/models/m:METHOD",
		`{"tools":[{"functionDeclarations":[{"name":"Bash"}]}],"contents":[{"role":"user","parts":[{"text":"go"}]},
		  {"role":"model","parts":[]},
		  {"role":"user","parts":[{"functionResponse":{"id":"toolu_c0t0n0","name":"Bash","response":"job 77"}}]}]}`,
		[]string{`"functionCall"`, `toolu_c0t1n0`, `stop 77`},
	},
}

func TestEveryDialectFindsItsTurnAndItsResults(t *testing.T) {
	for _, c := range dialectCases {
		for _, stream := range []string{"false", "true"} {
			t.Run(c.name+"-stream-"+stream, func(t *testing.T) {
				s := Start(t, Script{Turns: []Turn{
					{Calls: []Call{{Name: "Bash"}}},
					{Calls: []Call{{Name: "Bash", Input: map[string]any{"command": "stop {{JOB}}"}}}, Capture: map[string]string{"JOB": `job (\d+)`}},
				}})
				method := "generateContent"
				if stream == "true" {
					method = "streamGenerateContent"
				}
				status, got := post(t, s.URL+strings.Replace(c.path, "METHOD", method, 1), strings.Replace(c.request, "STREAM", stream, 1))
				if status != 200 {
					t.Fatalf("status %d, want 200: %s", status, got)
				}
				if sse := strings.Contains(got, "data: {"); sse != (stream == "true") {
					t.Errorf("an event stream: %v, want %s", sse, stream)
				}
				for _, want := range c.want {
					if !strings.Contains(got, want) {
						t.Errorf("answer lacks %s:\n%s", want, got)
					}
				}
				r, ok := s.Result(0, 0)
				if !ok || !strings.Contains(r.Text, "job 77") {
					t.Errorf("result of turn 0: got %+v %v, want job 77", r, ok)
				}
			})
		}
	}
}

func TestSideRequestsUseNoTurnUp(t *testing.T) {
	s := Start(t, Script{Turns: []Turn{{Text: "first"}}, Advance: AdvanceCounter})
	_, side := post(t, s.URL+"/v1/messages", `{"messages":[{"role":"user","content":"title?"}]}`)
	_, main := post(t, s.URL+"/v1/messages", `{"tools":[{"name":"x"}],"messages":[{"role":"user","content":"go"}]}`)
	_, after := post(t, s.URL+"/v1/messages", `{"tools":[{"name":"x"}],"messages":[{"role":"user","content":"go"}]}`)
	for _, c := range []struct{ got, want string }{{side, `"ok"`}, {main, `"first"`}, {after, `"done"`}} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("got %s, want %s in it", c.got, c.want)
		}
	}
}

func TestConversationsAreToldByTheirFirstMessage(t *testing.T) {
	s := Start(t, Script{
		Turns:         []Turn{{Text: "main"}},
		Conversations: []Conversation{{Match: "^sub", Turns: []Turn{{Text: "other"}}}},
	})
	_, got := post(t, s.URL+"/v1/messages", `{"tools":[{"name":"x"}],"messages":[{"role":"user","content":"sub agent"}]}`)
	if !strings.Contains(got, `"other"`) {
		t.Errorf("got %s, want other", got)
	}
}

func TestFailuresAreGivenAsScripted(t *testing.T) {
	s := Start(t, Script{Turns: []Turn{{Status: 529, Error: "busy"}}})
	status, got := post(t, s.URL+"/v1/messages", `{"tools":[{"name":"x"}],"messages":[]}`)
	if status != 529 || !strings.Contains(got, "overloaded_error") {
		t.Errorf("got %d %s, want 529 overloaded_error", status, got)
	}
	hang := Start(t, Script{Turns: []Turn{{HangUp: true}}})
	resp, err := http.Post(hang.URL+"/v1/messages", "application/json", strings.NewReader(`{"tools":[{"name":"x"}],"messages":[]}`))
	if err == nil {
		resp.Body.Close()
		t.Errorf("got status %d, want a closed connection", resp.StatusCode)
	}
}

func TestScriptsAreStrict(t *testing.T) {
	if _, err := ReadScript(strings.NewReader(`{"turns":[{"cals":[]}]}`)); err == nil {
		t.Error("an unknown key was accepted")
	}
	if _, err := newPlayer(Script{Advance: "sideways"}); err == nil {
		t.Error("an unknown advance was accepted")
	}
	s, err := Script{Turns: []Turn{{Text: `{{A}}`}}}.Expand(map[string]string{"A": `q"\`})
	if err != nil || s.Turns[0].Text != `q"\` {
		t.Errorf("expand: got %q %v, want q\"\\", s.Turns[0].Text, err)
	}
}
