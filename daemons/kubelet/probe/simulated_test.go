package probe

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Probes of a simulated container succeed without a connection to its address. The listener simulates another machine
// with the same address.
func TestASimulatedContainerIsHealthyWithoutAConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	requested := make(chan struct{})
	go func() {
		defer close(requested)
		if conn, err := ln.Accept(); err == nil {
			t.Error("the address was asked")
			_ = conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	target := Target{
		Simulated: true,
		IP:        "127.0.0.1",
		Container: &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}},
	}
	get := &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("web")}
	for name, h := range map[string]corev1.ProbeHandler{
		"http": {HTTPGet: get}, "tcp": {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}},
		"grpc": {GRPC: &corev1.GRPCAction{Port: int32(port)}},
	} {
		if err := Run(ctx, &corev1.Probe{ProbeHandler: h}, target); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Get(ctx, get, target); err != nil {
		t.Errorf("hook: %v", err)
	}
	wrong := &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("none")}},
	}
	if err := Run(ctx, wrong, target); err == nil || !strings.Contains(err.Error(), "couldn't find port") {
		t.Errorf("a port that the container does not have: %v", err)
	}
	_ = ln.Close()
	<-requested
}
