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

// prepare asks the driver to prepare claims. The messages of both API versions have the same fields.
func (p *plugin) prepare(ctx context.Context, claims []Claim) (map[types.UID][]Device, map[types.UID]error, error) {
	got, refused := map[types.UID][]Device{}, map[types.UID]error{}
	take := func(uid, failure string, devices []Device) {
		if failure != "" {
			refused[types.UID(uid)] = errors.New(failure)
		} else {
			got[types.UID(uid)] = devices
		}
	}
	if p.beta {
		request := &drav1beta1.NodePrepareResourcesRequest{}
		for _, c := range claims {
			request.Claims = append(request.Claims,
				&drav1beta1.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
		}
		answer, err := drav1beta1.NewDRAPluginClient(p.conn).NodePrepareResources(ctx, request)
		if err != nil {
			return nil, nil, err
		}
		for uid, r := range answer.Claims {
			devices := make([]Device, 0, len(r.Devices))
			for _, d := range r.Devices {
				devices = append(devices, Device{d.RequestNames, d.PoolName, d.DeviceName, d.CdiDeviceIds})
			}
			take(uid, r.Error, devices)
		}
		return got, refused, nil
	}
	request := &drav1.NodePrepareResourcesRequest{}
	for _, c := range claims {
		request.Claims = append(request.Claims, &drav1.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	answer, err := drav1.NewDRAPluginClient(p.conn).NodePrepareResources(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	for uid, r := range answer.Claims {
		devices := make([]Device, 0, len(r.Devices))
		for _, d := range r.Devices {
			devices = append(devices, Device{d.RequestNames, d.PoolName, d.DeviceName, d.CdiDeviceIds})
		}
		take(uid, r.Error, devices)
	}
	return got, refused, nil
}

func (p *plugin) unprepare(ctx context.Context, c Claim) error {
	failure, said := "", false
	if p.beta {
		answer, err := drav1beta1.NewDRAPluginClient(p.conn).
			NodeUnprepareResources(ctx, &drav1beta1.NodeUnprepareResourcesRequest{
				Claims: []*drav1beta1.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}})
		if err != nil {
			return err
		}
		if r, ok := answer.Claims[string(c.UID)]; ok {
			failure, said = r.Error, true
		}
	} else {
		answer, err := drav1.NewDRAPluginClient(p.conn).NodeUnprepareResources(ctx,
			&drav1.NodeUnprepareResourcesRequest{
				Claims: []*drav1.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}})
		if err != nil {
			return err
		}
		if r, ok := answer.Claims[string(c.UID)]; ok {
			failure, said = r.Error, true
		}
	}
	switch {
	case !said:
		return errors.New("it said nothing about the claim")
	case failure != "":
		return errors.New(failure)
	}
	return nil
}
