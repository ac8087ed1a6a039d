package device

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
)

// plugin is a registered driver, with the connection to its socket.
type plugin struct {
	conn   *grpc.ClientConn
	beta   bool   // it only supports v1beta1
	health string // name of its health service; empty if it has none
}

func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return conn, nil
}

// invoke calls a method of the driver. It sends the messages of v1 with either API version: v1beta1 has the same
// messages, but for fields that only v1 has, and gRPC does not send the names of their types.
func (p *plugin) invoke(ctx context.Context, v1, beta string, request, answer any) error {
	if p.beta {
		return p.conn.Invoke(ctx, beta, request, answer)
	}
	return p.conn.Invoke(ctx, v1, request, answer)
}

// prepare asks the driver to prepare claims.
func (p *plugin) prepare(ctx context.Context, claims []Claim) (map[types.UID][]Device, map[types.UID]error, error) {
	request, answer := &drav1.NodePrepareResourcesRequest{}, &drav1.NodePrepareResourcesResponse{}
	for _, c := range claims {
		request.Claims = append(request.Claims, &drav1.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	if err := p.invoke(ctx, drav1.DRAPlugin_NodePrepareResources_FullMethodName,
		drav1beta1.DRAPlugin_NodePrepareResources_FullMethodName, request, answer); err != nil {
		return nil, nil, err
	}
	got, refused := map[types.UID][]Device{}, map[types.UID]error{}
	for uid, r := range answer.Claims {
		if r.Error != "" {
			refused[types.UID(uid)] = errors.New(r.Error)
			continue
		}
		devices := make([]Device, 0, len(r.Devices))
		for _, d := range r.Devices {
			devices = append(devices, Device{d.RequestNames, d.PoolName, d.DeviceName, d.CdiDeviceIds})
		}
		got[types.UID(uid)] = devices
	}
	return got, refused, nil
}

func (p *plugin) unprepare(ctx context.Context, c Claim) error {
	request := &drav1.NodeUnprepareResourcesRequest{
		Claims: []*drav1.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}}
	answer := &drav1.NodeUnprepareResourcesResponse{}
	if err := p.invoke(ctx, drav1.DRAPlugin_NodeUnprepareResources_FullMethodName,
		drav1beta1.DRAPlugin_NodeUnprepareResources_FullMethodName, request, answer); err != nil {
		return err
	}
	switch r, ok := answer.Claims[string(c.UID)]; {
	case !ok:
		return errors.New("it said nothing about the claim")
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}
