package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Proves S23.
func TestCountFollowsThresholds(t *testing.T) {
	p := &corev1.Probe{SuccessThreshold: 2, FailureThreshold: 3}
	var c Count
	for i, step := range []struct{ ok, verdict, changed bool }{
		{true, false, false}, {true, true, true}, {true, true, false}, {false, true, false}, {false, true, false},
		{true, true, false}, {false, true, false}, {false, true, false}, {false, false, true}, {false, false, false},
		{true, false, false}, {true, true, true},
	} {
		if verdict, changed := c.Add(step.ok, p); verdict != step.verdict || changed != step.changed {
			t.Errorf("step %d: %t, %t", i, verdict, changed)
		}
	}
}

// Proves S23.
func TestProbesReportSuccessAndFailure(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/bad":
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/away":
			http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
		case r.Host == "named.example" && r.Header.Get("X") == "y" && r.URL.RawQuery == "q=1":
		case r.URL.Path == "/good":
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	port, _ := strconv.Atoi(u.Port())
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closedPort := closed.Addr().(*net.TCPAddr).Port
	closed.Close()
	target := Target{
		Container: &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}},
		IP:        "127.0.0.1",
		Exec: func(_ context.Context, command []string, _ time.Duration) (string, int32, error) {
			switch command[0] {
			case "true":
				return "", 0, nil
			case "false":
				return "no", 1, nil
			}
			return "", 0, errors.New("timed out")
		},
	}
	get := func(path string, port intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: port}}
	}
	headers := get("/x?q=1", intstr.FromInt(port))
	headers.HTTPGet.HTTPHeaders = []corev1.HTTPHeader{{Name: "Host", Value: "named.example"}, {Name: "X", Value: "y"}}
	for name, c := range map[string]struct {
		handler corev1.ProbeHandler
		want    string
	}{
		"good": {get("/good", intstr.FromInt(port)), ""}, "named port": {get("good", intstr.FromString("web")), ""},
		"headers":       {headers, ""},
		"bad":           {get("/bad", intstr.FromInt(port)), "HTTP probe failed with statuscode: 500"},
		"redirect away": {get("/away", intstr.FromInt(port)), ""}, // upstream treats it as a success
		"no such port":  {get("/", intstr.FromString("none")), "couldn't find port: none in container "},
		"tcp":           {corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}}, ""},
		"tcp closed": {corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(closedPort)}},
			"any"},
		"exec":        {corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}, ""},
		"exec fails":  {corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}, "no"},
		"exec hangs":  {corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"hang"}}}, "any"},
		"grpc closed": {corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(closedPort)}}, "any"},
	} {
		err := Run(context.Background(), &corev1.Probe{ProbeHandler: c.handler}, target)
		switch {
		case c.want == "" && err != nil,
			c.want != "" && err == nil,
			c.want != "" && c.want != "any" && err.Error() != c.want:
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// A container that comes up shortly after its start becomes ready at once, not a period later.
func TestReadinessIsReportedSoonAfterTheStart(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	verdicts := make(chan bool, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w := &Worker{Kind: Readiness, Started: time.Now(), Target: Target{Container: &corev1.Container{}, IP: "127.0.0.1"},
		Probe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}},
			PeriodSeconds: 60,
		},
		OnVerdict: func(ok bool) { verdicts <- ok }, OnFailure: func(err error) {
			t.Errorf("an early refusal counted: "+
				"%v", err)
		}}
	go func() { defer close(done); w.Run(ctx) }()
	if ln, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	select {
	case ok := <-verdicts:
		if !ok {
			t.Error("it is not ready")
		}
	case <-time.After(time.Minute):
		t.Error("nothing was found")
	}
	cancel()
	<-done
}

// Proves S23.
func TestProbesUseTheConfiguredProtocol(t *testing.T) {
	spoken := make(chan int, 1)
	server := httptest.NewUnstartedServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { spoken <- r.ProtoMajor }),
	)
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	one, two := corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2
	for want, protocol := range map[int]*corev1.HTTPProtocol{1: &one, 2: &two} {
		get := &corev1.HTTPGetAction{Host: host, Port: intstr.Parse(port), Protocol: protocol}
		if err := httpGet(t.Context(), get, Target{Container: &corev1.Container{}}); err != nil {
			t.Fatal(err)
		}
		if got := <-spoken; got != want {
			t.Errorf("%s was spoken as HTTP/%d", *protocol, got)
		}
	}
}
