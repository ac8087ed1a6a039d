package device

import (
	"context"
	"net"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
)

// betaDriver is a driver that only serves v1beta1. It refuses the claim "broken".
type betaDriver struct {
	drav1beta1.UnimplementedDRAPluginServer
}

func (betaDriver) NodePrepareResources(
	_ context.Context,
	r *drav1beta1.NodePrepareResourcesRequest,
) (*drav1beta1.NodePrepareResourcesResponse, error) {
	out := &drav1beta1.NodePrepareResourcesResponse{Claims: map[string]*drav1beta1.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		if c.Name == "broken" {
			out.Claims[c.Uid] = &drav1beta1.NodePrepareResourceResponse{Error: "no power"}
			continue
		}
		out.Claims[c.Uid] = &drav1beta1.NodePrepareResourceResponse{Devices: []*drav1beta1.Device{{
			RequestNames: []string{"gpu"}, PoolName: "n", DeviceName: "d0",
			CdiDeviceIds: []string{"example.com/gpu=" + c.Namespace + "-" + c.Name}}}}
	}
	return out, nil
}

func (betaDriver) NodeUnprepareResources(
	_ context.Context,
	r *drav1beta1.NodeUnprepareResourcesRequest,
) (*drav1beta1.NodeUnprepareResourcesResponse, error) {
	out := &drav1beta1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1beta1.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		switch c.Name {
		case "broken":
			out.Claims[c.Uid] = &drav1beta1.NodeUnprepareResourceResponse{Error: "no power"}
		case "whole":
			out.Claims[c.Uid] = &drav1beta1.NodeUnprepareResourceResponse{}
		}
	}
	return out, nil
}

func TestDriversOfTheBetaVersionPrepareAndUnprepareClaims(t *testing.T) {
	socket := filepath.Join(shortDir(t), "beta.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	drav1beta1.RegisterDRAPluginServer(server, betaDriver{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p := &plugin{conn: conn, beta: true}
	whole := Claim{Namespace: "ns", Name: "whole", UID: "u1"}
	broken := Claim{Namespace: "ns", Name: "broken", UID: "u2"}
	got, refused, err := p.prepare(t.Context(), []Claim{whole, broken})
	if err != nil {
		t.Fatal(err)
	}
	want := map[types.UID][]Device{"u1": {{[]string{"gpu"}, "n", "d0", []string{"example.com/gpu=ns-whole"}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("prepared %v, not %v", got, want)
	}
	if len(refused) != 1 || refused["u2"] == nil || refused["u2"].Error() != "no power" {
		t.Errorf("refused %v", refused)
	}
	if err := p.unprepare(t.Context(), whole); err != nil {
		t.Error(err)
	}
	if err := p.unprepare(t.Context(), broken); err == nil || err.Error() != "no power" {
		t.Errorf("unprepare a claim that the driver refuses: %v", err)
	}
	if err := p.unprepare(t.Context(), Claim{Namespace: "ns", Name: "other", UID: "u3"}); err == nil {
		t.Error("unprepare a claim that the driver leaves out: no error")
	}
}
