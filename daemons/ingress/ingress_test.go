package ingress

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/route"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes/fake"
)

// freePorts returns two free ports.
func freePorts(t *testing.T) (plain, secure int) {
	for _, to := range []*int{&plain, &secure} {
		port, err := run.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		*to = port
	}
	return plain, secure
}

func settings(t *testing.T) config.Ingress {
	cfg := config.DefaultIngress()
	cfg.BindAddress, cfg.HealthAddress = "127.0.0.1", ""
	cfg.HTTPPort, cfg.HTTPSPort = freePorts(t)
	cfg.NodeName, cfg.NodeIP, cfg.ServiceName = "a", []string{"10.0.0.1", "fd00::1"}, "kube-system/kube-ingress"
	return cfg
}

// objects returns a class, a service "web" with the given endpoint, and an Ingress for it.
func objects(address string) []runtime.Object {
	at := netip.MustParseAddrPort(address)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "default",
			Name:      name,
			UID:       "1",
			Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
		}
	}
	in := &networkingv1.Ingress{ObjectMeta: meta("web"), Spec: networkingv1.IngressSpec{
		IngressClassName: ptr.To(
			"clusterctl",
		), DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web",
			Port: networkingv1.ServiceBackendPort{Number: 80}}},
	}}
	in.Annotations = map[string]string{"nginx.ingress.kubernetes.io/auth-url": "http://auth"}
	return []runtime.Object{
		&networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: "clusterctl"},
			Spec:       networkingv1.IngressClassSpec{Controller: route.Controller},
		},
		&corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&discoveryv1.EndpointSlice{
			ObjectMeta:  meta("web-1"),
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Port: ptr.To(int32(at.Port()))}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}}},
		},
		in,
	}
}

func eventually(t *testing.T, what string, matches func() bool) {
	t.Helper()
	until := time.Now().Add(20 * time.Second)
	for !matches() {
		if time.Now().After(until) {
			t.Fatalf("in 20 s it did not come about that %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// startDaemon starts the daemon. The returned function stops it and waits.
func startDaemon(t *testing.T, cfg config.Ingress, clients *fake.Clientset,
	kept map[string][]net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- serve(ctx, cfg, env, clients, nil, kept) }()
	eventually(t, "the daemon is ready", func() bool {
		select {
		case err := <-done:
			t.Fatalf("the daemon ended: %v", err)
		default:
		}
		return env.Health.Err(true) == nil
	})
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestIngressesAreServedAndGetTheirAddress(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	pod := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "from the pod") }),
	)
	defer pod.Close()
	cfg, clients := settings(t), fake.NewClientset(objects(pod.Listener.Addr().String())...)
	stop := startDaemon(t, cfg, clients, nil)
	url := "http://127.0.0.1:" + strconv.Itoa(cfg.HTTPPort)
	get := func() string {
		res, err := http.Get(url)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return string(text)
	}
	if got := get(); got != "from the pod" {
		t.Errorf("the first answer once the daemon is ready: %s", got)
	}
	addresses := func() (list []string) {
		in, err := clients.NetworkingV1().Ingresses("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range in.Status.LoadBalancer.Ingress {
			list = append(list, a.IP)
		}
		return list
	}
	eventually(t, "the Ingress has the addresses of the machine",
		func() bool { return slices.Equal(addresses(), []string{"10.0.0.1", "fd00::1"}) })
	eventually(t, "the Ingress has the events of being taken in, and of what is not carried out", func() bool {
		events, err := clients.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, e := range events.Items {
			reasons = append(reasons, e.Reason)
		}
		slices.Sort(reasons)
		return slices.Equal(reasons, []string{"Sync", "UnsupportedAnnotation"})
	})
	// The pod gets another address.
	other := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "from another") }),
	)
	defer other.Close()
	slice := objects(other.Listener.Addr().String())[2].(*discoveryv1.EndpointSlice)
	if _, err := clients.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another pod answers", func() bool { return get() == "from another" })
	stop()
	left, err := clients.DiscoveryV1().EndpointSlices("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("endpoints of a proxy that has stopped are still there: %v, %v", left.Items, err)
	}
}

// fakeSystemd receives sockets from a daemon, as systemd's file descriptor store does.
type fakeSystemd struct {
	*net.UnixConn
	path string
}

func newFakeSystemd(t *testing.T) fakeSystemd {
	path := t.TempDir() + "/notify"
	nc, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return fakeSystemd{nc, path}
}

// nextSocket returns the name and descriptor of the next received socket.
func (s fakeSystemd) nextSocket(t *testing.T) (string, int) {
	text, rights := make([]byte, 1000), make([]byte, 100)
	_ = s.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, m, _, _, err := s.ReadMsgUnix(text, rights)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%q: %d messages, %v", text[:n], len(messages), err)
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	name, ok := strings.CutPrefix(string(text[:n]), "FDSTORE=1\nFDPOLL=0\nFDNAME=")
	if !ok {
		t.Fatalf("%q", text[:n])
	}
	return name, files[0]
}

// Connections during a restart wait in the sockets that the service manager keeps.
func TestNoConnectionIsLostDuringARestart(t *testing.T) {
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") }))
	defer pod.Close()
	manager := newFakeSystemd(t)
	t.Setenv("NOTIFY_SOCKET", manager.path)
	cfg, clients := settings(t), fake.NewClientset(objects(pod.Listener.Addr().String())...)
	stop := startDaemon(t, cfg, clients, nil)
	given := map[string]int{}
	for range 2 {
		name, fd := manager.nextSocket(t)
		given[name] = fd
	}
	stop()
	// No daemon runs, but clients can connect.
	answered := make(chan error, 20)
	for range 20 {
		nc, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(cfg.HTTPPort))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(nc, "GET / HTTP/1.0\r\nHost: a\r\n\r\n")
		go func() {
			defer nc.Close()
			_ = nc.SetReadDeadline(time.Now().Add(20 * time.Second))
			text, err := io.ReadAll(nc)
			if err == nil && !strings.HasSuffix(string(text), "\r\n\r\nok") {
				err = fmt.Errorf("answer %q", text)
			}
			answered <- err
		}()
	}
	kept := map[string][]net.Listener{}
	for name, fd := range given {
		file := os.NewFile(uintptr(fd), name)
		ln, err := net.FileListener(file)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		kept[name] = []net.Listener{ln}
	}
	startDaemon(t, cfg, clients, kept)
	for range 20 {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
}
