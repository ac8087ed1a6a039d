package ssh_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/host/ssh"
)

// server is an sshd on loopback with configured answers to the probe. It runs an agent for a machine in memory.
type server struct {
	port         int
	hostKey      gossh.Signer
	sudo         string // result of the probe: root, nopass, pass, nosudo
	hasProgram   bool   // the program is already on the machine
	floodsOutput bool   // every command prints endless output
	stderrText   string // what the agent writes to standard error before it exits
	hangs        string // a command that contains this never ends
	mu           sync.Mutex
	ran          []string
	received     []byte
}

func newKey(t *testing.T) (gossh.Signer, []byte) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gossh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := gossh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	return signer, pem.EncodeToMemory(block)
}

// startServer returns a server, and a home folder whose key it accepts.
func startServer(t *testing.T) (*server, string) {
	t.Helper()
	home := t.TempDir()
	client, text := newKey(t)
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".ssh", "id_ed25519"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{sudo: "root", hasProgram: true}
	s.hostKey, _ = newKey(t)
	cfg := &gossh.ServerConfig{
		PublicKeyCallback: func(_ gossh.ConnMetadata, k gossh.PublicKey) (*gossh.Permissions, error) {
			if bytes.Equal(k.Marshal(), client.PublicKey().Marshal()) {
				return nil, nil
			}
			return nil, errors.New("unknown key")
		},
	}
	cfg.AddHostKey(s.hostKey)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = ln.Addr().(*net.TCPAddr).Port
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.serve(conn, cfg) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	return s, home
}

func (s *server) serve(conn net.Conn, cfg *gossh.ServerConfig) {
	_, channels, requests, err := gossh.NewServerConn(conn, cfg)
	if err != nil {
		return
	}
	go gossh.DiscardRequests(requests)
	var wg sync.WaitGroup
	ended := make(chan struct{}) // closed when the connection has ended
	defer wg.Wait()
	defer close(ended)
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			for r := range requests {
				if r.Type != "exec" {
					_ = r.Reply(false, nil)
					continue
				}
				_ = r.Reply(true, nil)
				status := s.exec(string(r.Payload[4:]), channel, ended)
				_, _ = channel.SendRequest("exit-status", false, []byte{0, 0, 0, byte(status)})
				_ = channel.Close()
			}
		})
	}
}

func (s *server) exec(command string, c gossh.Channel, ended <-chan struct{}) int {
	s.mu.Lock()
	s.ran = append(s.ran, command)
	s.mu.Unlock()
	switch {
	case s.floodsOutput:
		piece := bytes.Repeat([]byte("x"), 64<<10)
		for range 2048 {
			if _, err := c.Write(piece); err != nil {
				break
			}
			if _, err := c.Stderr().Write(piece); err != nil {
				break
			}
		}
	case s.hangs != "" && strings.Contains(command, s.hangs):
		<-ended
	case strings.Contains(command, "LC_ALL"):
		state := "absent"
		if s.hasProgram {
			state = "there"
		}
		_, _ = io.WriteString(c, "clusterctl-probe\n0\nx86_64\nLinux\n"+s.sudo+"\n"+state+"\n")
	case s.stderrText != "" && strings.HasSuffix(command, " agent"):
		_, _ = io.WriteString(c.Stderr(), s.stderrText)
		return 1
	case strings.HasSuffix(command, " agent"):
		_ = agent.Serve(context.Background(), &hostfake.Host{Machine: host.Facts{Hostname: "m1"}}, c, c)
	case strings.Contains(command, "gzip -dc"):
		s.received, _ = io.ReadAll(c)
	default:
		return 1
	}
	return 0
}

func (s *server) machine() config.Machine {
	return config.Machine{IP: netip.MustParseAddr("127.0.0.1"), SSH: config.SSH{User: "admin", Port: s.port}}
}

func noEnvironment(string) string { return "" }

// settingsOf returns the settings of a home folder that only the test has.
func settingsOf(home string) ssh.Files { return ssh.Files{Home: home, System: os.DevNull} }

func dial(t *testing.T, s *server, home string, accept bool) (*ssh.Client, error) {
	t.Helper()
	c, err := ssh.Dial(t.Context(), s.machine(),
		ssh.Options{Files: settingsOf(home), AcceptNewHostKeys: accept, Getenv: noEnvironment})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

var program = ssh.Program{
	Digest: strings.Repeat("ab", 32),
	Arch:   "x86_64",
	Gzip: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("compressed")), nil
	},
}

// A host key is trusted if known_hosts lists it, or if the user accepts it once.
// Proves P03.
func TestHostKeys(t *testing.T) {
	s, home := startServer(t)
	if _, err := dial(t, s, home, false); !errors.Is(err, ssh.ErrHostKey) ||
		!strings.Contains(err.Error(), "-accept-new-host-keys") {
		t.Fatalf("unknown key: %v", err)
	}
	if _, err := dial(t, s, home, true); err != nil {
		t.Fatalf("accepting: %v", err)
	}
	if _, err := dial(t, s, home, false); err != nil {
		t.Fatalf("known by now: %v", err)
	}
	path := filepath.Join(home, ".ssh", "known_hosts")
	other, _ := newKey(t)
	line := "[127.0.0.1]:" + strconv.Itoa(s.port) + " " + string(gossh.MarshalAuthorizedKey(other.PublicKey()))
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := dial(t, s, home, true)
	if !errors.Is(err, ssh.ErrHostKey) || !strings.Contains(err.Error(), "ssh-keygen -R") {
		t.Errorf("changed key: %v", err)
	}
}

func TestFailedLoginsListTheTriedMethods(t *testing.T) {
	s, home := startServer(t)
	_, text := newKey(t)
	if err := os.WriteFile(filepath.Join(home, ".ssh", "id_ed25519"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := dial(t, s, home, true)
	if !errors.Is(err, ssh.ErrLogin) || !strings.Contains(err.Error(), "id_ed25519") ||
		!strings.Contains(err.Error(), "authorized_keys") {
		t.Errorf("error %v", err)
	}
}

func TestMachinesThatAreOffAreUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{port: ln.Addr().(*net.TCPAddr).Port}
	_ = ln.Close()
	if _, err := dial(t, s, t.TempDir(), true); !errors.Is(err, ssh.ErrUnreachable) {
		t.Errorf("error %v", err)
	}
}

// A machine that accepts a login, but whose shell or disk then hangs, does not block a run forever.
// Proves P05.
func TestHangingShellsTimeOut(t *testing.T) {
	for _, hangs := range []string{"id -u", "gzip -dc"} {
		s, home := startServer(t)
		s.hangs, s.hasProgram = hangs, false
		c, err := dial(t, s, home, true)
		if err != nil {
			t.Fatal(err)
		}
		silent := program
		silent.SilenceTimeout = 100 * time.Millisecond
		if _, err := c.Start(t.Context(), silent); !errors.Is(err, ssh.ErrLogin) ||
			!strings.Contains(err.Error(), "the machine is silent for 100ms") {
			t.Errorf("%s hangs: %v", hangs, err)
		}
	}
}

func TestMissingRootAccessNamesTheFix(t *testing.T) {
	for sudo, hint := range map[string]string{"pass": "sudo_password_env", "tty": "Defaults:admin " +
		"!requiretty", "nosudo": "install sudo", "doaspass": "permit nopass admin"} {
		s, home := startServer(t)
		s.sudo = sudo
		c, err := dial(t, s, home, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Start(t.Context(), program); !errors.Is(err, ssh.ErrRoot) ||
			!strings.Contains(err.Error(), hint) {
			t.Errorf("%s: error %v lacks %q", sudo, err, hint)
		}
	}
}

// The error of an agent that exits contains the agent's message, without the locale warnings of shells and without
// control characters.
func TestFailedAgentsReportTheirReason(t *testing.T) {
	for message, want := range map[string]string{
		"bash: warning: setlocale: LC_ALL: cannot change locale (xx_YY)\n" +
			"no space left on device\n": "the agent ended: no space left on device",
		"\x1b]0;owned\x07killed\r\n": "the agent ended: ]0;ownedkilled",
	} {
		s, home := startServer(t)
		s.hasProgram, s.stderrText = true, message
		c, err := dial(t, s, home, true)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := c.Start(t.Context(), program)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(stream); err == nil || err.Error() != want {
			t.Errorf("error %q, want %q", fmt.Sprint(err), want)
		}
	}
}

// A machine that sends endless output does not use much memory of the operator's computer.
func TestEndlessOutputTakesNoMemory(t *testing.T) {
	s, home := startServer(t)
	s.floodsOutput = true
	c, err := dial(t, s, home, true)
	if err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // the limit below is for the default
	maximum, done := uint64(0), make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			maximum = max(maximum, m.HeapAlloc)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	_, err = c.Start(t.Context(), program)
	close(done)
	watch.Wait()
	if !errors.Is(err, ssh.ErrLogin) {
		t.Errorf("error %v", err)
	}
	if maximum > 64<<20 {
		t.Errorf("the heap grew to %d MB", maximum>>20)
	}
}

// A connection starts one agent. The program is sent only to a machine that lacks it.
// Proves P03.
func TestTheAgentIsSentOnceAndAnswers(t *testing.T) {
	for exists, sudo := range map[bool]string{true: "nopass", false: "doas"} {
		s, home := startServer(t)
		s.hasProgram, s.sudo = exists, sudo
		c, err := dial(t, s, home, true)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := c.Start(t.Context(), program)
		if err != nil {
			t.Fatal(err)
		}
		a := agent.NewClient(stream)
		facts, err := a.Facts(t.Context())
		if err != nil || facts.Hostname != "m1" {
			t.Errorf("facts %+v, %v", facts, err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if exists == (len(s.received) > 0) {
			t.Errorf("there before: %t, sent %d bytes", exists, len(s.received))
		}
		if last := s.ran[len(s.ran)-1]; !strings.HasPrefix(last,
			map[string]string{"nopass": "sudo -n ", "doas": "doas -n "}[sudo]) {
			t.Errorf("the agent was started as %q", last)
		}
	}
}

func TestOpenSSHSettingsApply(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "Host 10.0.0.* !10.0.0.9\n  User ops\n  Port 2222\n  IdentityFile ~/.ssh/ops\n  ProxyJump gate\nHost *\n " +
		" User other\n"
	if err := os.WriteFile(filepath.Join(home, ".ssh", "config"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]string{
		"10.0.0.1": "ops 2222 gate " + filepath.Join(home, ".ssh", "ops"),
		"10.0.0.9": "other 22  " + filepath.Join(home, ".ssh", "id_rsa"),
	} {
		got, err := ssh.Resolve(config.Machine{IP: netip.MustParseAddr(ip)}, settingsOf(home), noEnvironment)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join([]string{got.User, strconv.Itoa(got.Port), strings.Join(got.Jumps, ","), got.Keys[0]},
			" "); text != want {
			t.Errorf("%s: %q, want %q", ip, text, want)
		}
	}
}
