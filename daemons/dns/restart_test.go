package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes/fake"
)

// TestMain runs a server or clients of a test if the environment says so.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("DNS_SERVER") != "":
		serveProcess(os.Getenv("DNS_SERVER"))
	case os.Getenv("BENCH_CLIENT") != "":
		runBenchClient()
	default:
		os.Exit(m.Run())
	}
}

// selfCommand returns this program as another process, with its own process ID in LISTEN_PID as set by systemd.
func selfCommand(t testing.TB, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `LISTEN_PID=$$ exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// serveProcess runs a name server as its unit does, for a cluster with one service.
func serveProcess(address string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := settings("127.0.0.1:1")
	cfg.BindAddress = address
	env := run.NewEnv(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	clients := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		service("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7"}))
	var g sync.WaitGroup
	notify, end := context.WithCancel(context.Background())
	g.Go(func() { run.Notify(notify, env.Health) })
	err := serve(ctx, cfg, env, clients)
	end()
	g.Wait()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fakeSystemd simulates systemd for a unit with FileDescriptorStoreMax.
type fakeSystemd struct {
	t          testing.TB
	conn       *net.UnixConn
	socketPath string
	ready      chan struct{}

	mu    sync.Mutex
	names []string
	files []int
}

func newFakeSystemd(t testing.TB) *fakeSystemd {
	t.Helper()
	m := &fakeSystemd{t: t, socketPath: filepath.Join(t.TempDir(), "notify"), ready: make(chan struct{}, 100)}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.socketPath, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	m.conn = conn
	done := make(chan struct{})
	go func() { defer close(done); m.listen() }()
	t.Cleanup(func() {
		conn.Close()
		<-done
		for _, f := range m.files {
			_ = unix.Close(f)
		}
	})
	return m
}

func (m *fakeSystemd) listen() {
	buf, rights := make([]byte, 4096), make([]byte, 4096)
	for {
		n, r, _, _, err := m.conn.ReadMsgUnix(buf, rights)
		if err != nil {
			return
		}
		text := string(buf[:n])
		_, name, _ := strings.Cut(text, "FDNAME=")
		m.mu.Lock()
		switch {
		case strings.HasPrefix(text, "FDSTORE=1"):
			messages, _ := unix.ParseSocketControlMessage(rights[:r])
			for _, one := range messages {
				fds, _ := unix.ParseUnixRights(&one)
				for _, fd := range fds {
					m.store(name, fd)
				}
			}
		case strings.HasPrefix(text, "FDSTOREREMOVE=1"):
			for i := 0; i < len(m.names); {
				if m.names[i] != name {
					i++
					continue
				}
				_ = unix.Close(m.files[i])
				m.names, m.files = append(m.names[:i], m.names[i+1:]...), append(m.files[:i], m.files[i+1:]...)
			}
		case strings.Contains(text, "READY=1"):
			m.ready <- struct{}{}
		}
		m.mu.Unlock()
	}
}

// store keeps a socket unless it is already kept, as systemd does.
func (m *fakeSystemd) store(name string, fd int) {
	var this, got unix.Stat_t
	_ = unix.Fstat(fd, &this)
	for _, old := range m.files {
		if _ = unix.Fstat(old, &got); got.Ino == this.Ino {
			_ = unix.Close(fd)
			return
		}
	}
	m.names, m.files = append(m.names, name), append(m.files, fd)
}

// start starts a process with the kept sockets, and waits until it reports that it is ready.
func (m *fakeSystemd) start(address string) (*exec.Cmd, *bytes.Buffer) {
	m.t.Helper()
	m.mu.Lock()
	cmd := selfCommand(m.t, "DNS_SERVER="+address, "NOTIFY_SOCKET="+m.socketPath,
		fmt.Sprintf("LISTEN_FDS=%d", len(m.files)), "LISTEN_FDNAMES="+strings.Join(m.names, ":"))
	for i, fd := range m.files {
		own, err := unix.Dup(fd)
		if err != nil {
			m.t.Fatal(err)
		}
		f := os.NewFile(uintptr(own), m.names[i])
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	m.mu.Unlock()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	select {
	case <-m.ready:
	case <-time.After(clientTimeout):
		m.t.Fatalf("the server is not ready: %s", log.String())
	}
	return cmd, &log
}

// clientTimeout is the timeout of clients. It is long, because a late query on a busy machine is not lost.
const clientTimeout = time.Minute

// Continuous clients notice no restart: queries wait in the socket while no process runs, and a process answers what it
// has read before it ends.
func TestNoQueryIsLostDuringRestarts(t *testing.T) {
	m := newFakeSystemd(t)
	requests, lost := queryDuringRestarts(t, m)
	for _, err := range lost {
		t.Errorf("a query is lost: %v", err)
	}
	t.Logf("%d queries", requests)

	// A server with another address closes the kept sockets.
	var other sockets
	if err := other.open(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	elsewhere := other.address().String()
	other.close()
	server, _ := m.start(elsewhere)
	if _, _, err := (&dns.Client{Timeout: clientTimeout}).Exchange(new(dns.Msg).SetQuestion(
		"web.shop.svc.cluster.local.", dns.TypeA), elsewhere); err != nil {
		t.Error(err)
	}
	m.mu.Lock()
	if len(m.files) != 2 {
		t.Errorf("%d sockets are kept: %v", len(m.files), m.names)
	}
	m.mu.Unlock()
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()
}

// BenchmarkRestarts reports these numbers.
func BenchmarkRestarts(b *testing.B) {
	total, failed := int64(0), 0
	for range b.N {
		requests, lost := queryDuringRestarts(b, newFakeSystemd(b))
		total, failed = total+requests, failed+len(lost)
	}
	b.ReportMetric(float64(total), "asked")
	b.ReportMetric(float64(failed), "lost")
}

// queryDuringRestarts restarts a server five times while clients send queries, and kills it at the end. It returns the
// number of answered queries, and the errors of the others.
func queryDuringRestarts(t testing.TB, m *fakeSystemd) (int64, []error) {
	t.Helper()
	var at sockets
	if err := at.open(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	address := at.address().String()
	at.close()
	server, log := m.start(address)
	ctx, stop := context.WithCancel(t.Context())
	var requests, overTCP atomic.Int64
	var lost sync.Map
	var g sync.WaitGroup
	q := packQuery(t, "web.shop.svc.cluster.local.", dns.TypeA)
	for i := range 8 {
		g.Go(func() {
			conn, err := net.Dial("udp", address)
			if err != nil {
				lost.Store(i, err)
				return
			}
			defer conn.Close()
			buf := make([]byte, 4096)
			for ctx.Err() == nil {
				_ = conn.SetDeadline(time.Now().Add(clientTimeout))
				if _, err = conn.Write(q); err == nil {
					_, err = conn.Read(buf)
				}
				if err != nil {
					lost.Store(i, err)
					return
				}
				requests.Add(1)
			}
		})
	}
	// TCP clients open a connection for each query.
	g.Go(func() {
		for ctx.Err() == nil {
			c := &dns.Client{Net: "tcp", Timeout: clientTimeout}
			reply, _, err := c.Exchange(new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA), address)
			if err != nil || formatAnswer(reply) != "A 10.96.0.7" {
				lost.Store("tcp", errors.Join(err, errors.New("over tcp")))
				return
			}
			overTCP.Add(1)
		}
	})
	const restarts = 5
	for range restarts {
		before, beforeTCP := requests.Load(), overTCP.Load()
		waitFor(t, "queries to be answered", func() bool {
			failed := false
			lost.Range(func(_, _ any) bool { failed = true; return false })
			return failed || requests.Load() > before+100 && overTCP.Load() > beforeTCP+3
		})
		if err := server.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := server.Wait(); err != nil {
			t.Fatalf("%v: %s", err, log.String())
		}
		server, log = m.start(address)
	}
	stop()
	g.Wait()
	var failures []error
	lost.Range(func(who, err any) bool {
		failures = append(failures, fmt.Errorf("client %v: %w", who, err.(error)))
		return true
	})
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()
	return requests.Load() + overTCP.Load(), failures
}
