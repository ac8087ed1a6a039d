package walk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/netns"
)

// TestMain can also run either end of a walk as a separate process, whose threads are all in one network namespace.
func TestMain(m *testing.M) {
	var err error
	switch os.Getenv("WALK") {
	case "serve":
		err = Serve(context.Background(), "one", ":9000")
	case "ask":
		err = Run(context.Background(), os.Stdin, os.Stdout)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func startProcess(t *testing.T, end string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "WALK="+end)
	return cmd
}

func TestWalksReportServersAndFailuresByProtocol(t *testing.T) {
	server, client := netns.New(t), netns.New(t)
	server.IP(t, "link add eth0 type veth peer name eth1")
	server.MoveLink(t, "eth1", client)
	for stack, words := range map[*netns.Stack][]string{
		server: {"addr add 10.0.0.1/24 dev eth0", "addr add fd00::1/64 dev eth0 nodad", "link set eth0 up"},
		client: {"addr add 10.0.0.2/24 dev eth1", "addr add fd00::2/64 dev eth1 nodad", "link set eth1 up"},
	} {
		for _, w := range words {
			stack.IP(t, w)
		}
	}
	serving := startProcess(t, "serve")
	serving.Stderr = os.Stderr
	if err := server.Do(serving.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = serving.Process.Kill(), serving.Wait() })
	asks := map[string]Ask{}
	for _, p := range []string{"TCP", "UDP", "SCTP"} {
		for family, host := range map[int]string{4: "10.0.0.1", 6: "[fd00::1]"} {
			for port, want := range map[int]string{9000: Reached, 9001: Refused} {
				if p == "SCTP" && want == Refused {
					want = Dropped // a raw socket accepts it and does not answer
				}
				asks[fmt.Sprintf("%s %s:%d: %s", p, host, port, want)] = Ask{
					Protocol: p,
					Family:   family,
					To:       fmt.Sprintf("%s:%d", host, port),
					Wait:     time.Second,
					Tries:    3,
				}
			}
		}
	}
	asks["no address: "+NoRoute] = Ask{Protocol: "TCP", Family: 4, To: "198.51.100.1:1", Wait: time.Second}
	asks["no server of names: "+NoName] = Ask{
		Protocol: "UDP",
		Family:   4,
		To:       "nobody.invalid:1",
		Names:    "10.0.0.1:9001",
		Wait:     time.Second,
	}
	var in bytes.Buffer
	for id, a := range asks {
		a.ID = id
		if err := json.NewEncoder(&in).Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	// The servers take some time to start listening.
	for end := time.Now().Add(10 * time.Second); ; {
		asking := startProcess(t, "ask")
		asking.Stdin, asking.Stderr = bytes.NewReader(in.Bytes()), os.Stderr
		var out []byte
		if err := client.Do(func() (err error) { out, err = asking.Output(); return err }); err != nil {
			t.Fatal(err)
		}
		wrong := mismatches(t, asks, string(out))
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal(strings.Join(wrong, "\n"))
		}
	}
}

func mismatches(t *testing.T, asks map[string]Ask, text string) (wrong []string) {
	t.Helper()
	count := 0
	for line := range strings.Lines(text) {
		var a Answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		count++
		_, want, _ := strings.Cut(a.ID, ": ")
		own := map[int]string{4: "10.0.0.2", 6: "fd00::2"}[asks[a.ID].Family]
		if a.Outcome != want ||
			want == Reached && (strings.Join(a.Servers, " ") != "one" || strings.Join(a.Clients, " ") != own) {
			wrong = append(wrong, line)
		}
	}
	if count != len(asks) {
		wrong = append(wrong, fmt.Sprintf("%d of %d answers", count, len(asks)))
	}
	return wrong
}

func TestHTTPWalksUseTheClientNamedByTheProxy(t *testing.T) {
	for _, secure := range []bool{false, true} {
		server, protocol := httptest.NewUnstartedServer(WhoHandler("one")), "HTTP"
		if server.Start(); secure {
			server.Close()
			server, protocol = httptest.NewTLSServer(WhoHandler("one")), "HTTPS"
		}
		t.Cleanup(server.Close)
		to := server.Listener.Addr().String()
		if a := (Ask{Protocol: protocol, To: to, Host: "example.com",
			Wait: 5 * time.Second}).answer(t.Context()); a.Outcome != Reached ||
			a.Servers[0] != "one" ||
			a.Clients[0] != "127.0.0.1" {
			t.Errorf("%s: %+v", protocol, a)
		}
		if a := (Ask{Protocol: "HTTPS", To: to, Host: "other.example",
			Wait: 5 * time.Second}).answer(t.Context()); a.Outcome != outcomeError {
			t.Errorf("%s, another host's certificate: %+v", protocol, a)
		}
	}
	r := httptest.NewRequest("GET", "/who", nil)
	r.Header.Set("X-Forwarded-For", "192.0.2.7, 10.0.0.9")
	w := httptest.NewRecorder()
	WhoHandler("one").ServeHTTP(w, r)
	if w.Body.String() != "one 10.0.0.9\n" {
		t.Errorf("said %q", w.Body)
	}
}
