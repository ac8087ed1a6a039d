package fetch

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// repository is a bare repository of the git program, and a working copy.
type repository struct {
	t        *testing.T
	dir      string // contains platform.git
	bare     string
	work     string
	requests atomic.Int64 // for packs
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	dir := t.TempDir()
	r := &repository{t: t, dir: dir, bare: filepath.Join(dir, "platform.git"), work: filepath.Join(dir, "work")}
	r.git(dir, "init", "--quiet", "--bare", "--initial-branch=main", r.bare)
	r.git(dir, "init", "--quiet", "--initial-branch=main", r.work)
	r.git(r.bare, "config", "http.receivepack", "false")
	return r
}

// git runs the git program without the configuration of the user.
func (r *repository) git(dir string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit replaces the files of the branch, and returns the ID of the commit.
func (r *repository) commit(files map[string]string) string {
	r.t.Helper()
	r.git(r.work, "rm", "-r", "--force", "--quiet", "--ignore-unmatch", ".")
	for name, text := range files {
		path := filepath.Join(r.work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	r.git(r.work, "add", "--all")
	r.git(r.work, "commit", "--quiet", "--allow-empty", "--message", "change")
	r.push("main")
	return r.git(r.work, "rev-parse", "HEAD")
}

// packOf returns a pack with some objects.
func (r *repository) packOf(objects []string) []byte {
	r.t.Helper()
	cmd := exec.Command("git", "pack-objects", "--stdout", "--quiet")
	cmd.Dir, cmd.Stdin = r.bare, strings.NewReader(strings.Join(objects, "\n")+"\n")
	pack, err := cmd.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	return pack
}

func (r *repository) push(refs ...string) {
	r.t.Helper()
	r.git(r.work, append([]string{"push", "--quiet", "--force", r.bare}, refs...)...)
}

// serveHTTP serves the repository over https to clients that authorize accepts. It returns the URL and the CA.
func (r *repository) serveHTTP(authorize func(*http.Request) bool) (url string, ca []byte) {
	r.t.Helper()
	backend := &cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Env: []string{"GIT_PROJECT_ROOT=" + r.dir,
		"GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + r.dir}, Logger: nil, Stderr: io.Discard}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !authorize(q) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if strings.HasSuffix(q.URL.Path, "/"+service) {
			r.requests.Add(1)
		}
		backend.ServeHTTP(w, q)
	}))
	r.t.Cleanup(server.Close)
	return server.URL + "/platform.git", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: server.Certificate().Raw})
}

// serveSSH serves the repository over ssh. It returns the URL and credentials.
func (r *repository) serveSSH() (url string, credentials map[string][]byte) {
	r.t.Helper()
	host, user := newKey(r.t), newKey(r.t)
	hostSigner, err := ssh.NewSignerFromKey(host)
	if err != nil {
		r.t.Fatal(err)
	}
	userSigner, err := ssh.NewSignerFromKey(user)
	if err != nil {
		r.t.Fatal(err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata,
		key ssh.PublicKey) (*ssh.Permissions, error) {
		if !bytes.Equal(key.Marshal(), userSigner.PublicKey().Marshal()) {
			return nil, io.EOF
		}
		return nil, nil
	}}
	config.AddHostKey(hostSigner)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.serveConn(conn, config)
		}
	}()
	block, err := ssh.MarshalPrivateKey(user, "")
	if err != nil {
		r.t.Fatal(err)
	}
	address := listener.Addr().String()
	return "ssh://git@" + address + r.bare, map[string][]byte{
		keyIdentity:   pem.EncodeToMemory(block),
		keyKnownHosts: []byte(knownhosts.Line([]string{knownhosts.Normalize(address)}, hostSigner.PublicKey()) + "\n"),
	}
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// serveConn runs the command that a client asks for, with a shell, as sshd does.
func (r *repository) serveConn(conn net.Conn, config *ssh.ServerConfig) {
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	defer server.Close()
	go ssh.DiscardRequests(requests)
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		go func() {
			defer channel.Close()
			for q := range requests {
				if q.Type != "exec" {
					continue
				}
				_ = q.Reply(true, nil)
				cmd := exec.Command("sh", "-c", string(q.Payload[4:]))
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_NOSYSTEM=1"}
				cmd.Stdout = channel
				in, err := cmd.StdinPipe()
				if err != nil {
					return
				}
				go func() { // ends with the channel
					_, _ = io.Copy(in, channel)
					_ = in.Close()
				}()
				status := []byte{0, 0, 0, 0}
				if cmd.Run() != nil {
					status[3] = 1
				}
				_, _ = channel.SendRequest("exit-status", false, status)
				return
			}
		}()
	}
}

func newFetcher(t *testing.T) *Fetcher {
	t.Helper()
	f, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func sourceOf(spec gitsource.Spec) *gitops.Source {
	s := &gitops.Source{Spec: spec}
	s.Namespace, s.Name = gitsource.Namespace, "platform"
	return s
}

// certificateOf returns the certificate of a test server, which all test servers share.
func certificateOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
