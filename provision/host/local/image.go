package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"clusterctl/provision/image"
)

const (
	containerdPath   = "/run/containerd/containerd.sock"
	containerdSocket = "unix://" + containerdPath
	criNamespace     = "k8s.io" // the namespace that CRI, and so the kubelet, uses
)

func containerd(ctx context.Context) (*grpc.ClientConn, context.Context, error) {
	conn, err := grpc.NewClient(containerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, fmt.Errorf("reach containerd: %w", err)
	}
	return conn, metadata.AppendToOutgoingContext(ctx, "containerd-namespace", criNamespace), nil
}

// HasImage reports whether containerd has an image.
func (h *Host) HasImage(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, ctx, err := containerd(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	_, err = imagesapi.NewImagesClient(conn).Get(ctx, &imagesapi.GetImageRequest{Name: name})
	switch status.Code(err) {
	case codes.OK:
		return true, nil
	case codes.NotFound, codes.Unavailable: // without a runtime there are no images
		return false, nil
	}
	return false, fmt.Errorf("look for image %s: %w", name, err)
}

// ImportImage writes an archive's content into containerd's content store. A lease protects the content from garbage
// collection until the image refers to it.
func (h *Host) ImportImage(ctx context.Context, name string, archive io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	conn, ctx, err := containerd(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	leases := leasesapi.NewLeasesClient(conn)
	lease, err := leases.Create(ctx, &leasesapi.CreateRequest{
		ID:     fmt.Sprintf("clusterctl-%d", time.Now().UnixNano()),
		Labels: map[string]string{"containerd.io/gc.expire": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
	}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("lease space for image %s: %w", name, err)
	}
	leased := metadata.AppendToOutgoingContext(ctx, "containerd-lease", lease.GetLease().GetID())
	defer func() { _, _ = leases.Delete(ctx, &leasesapi.DeleteRequest{ID: lease.GetLease().GetID()}) }()

	parsed, err := image.Read(archive)
	if err != nil {
		return fmt.Errorf("read the archive of image %s: %w", name, err)
	}
	contents := contentapi.NewContentClient(conn)
	for _, b := range parsed.Blobs {
		if err := writeBlob(leased, contents, b); err != nil {
			return fmt.Errorf("store %s of image %s: %w", b.Digest, name, err)
		}
	}
	images := imagesapi.NewImagesClient(conn)
	entry := &imagesapi.Image{
		Name: name,
		Target: &types.Descriptor{
			MediaType: parsed.Target.MediaType,
			Digest:    parsed.Target.Digest,
			Size:      parsed.Target.Size,
		},
	}
	_, err = images.Create(leased, &imagesapi.CreateImageRequest{Image: entry})
	if status.Code(err) == codes.AlreadyExists {
		_, err = images.Update(leased, &imagesapi.UpdateImageRequest{Image: entry})
	}
	if err != nil {
		return fmt.Errorf("name image %s: %w", name, err)
	}
	return nil
}

const chunkSize = 1 << 20

func writeBlob(ctx context.Context, c contentapi.ContentClient, b image.Blob) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Write(ctx)
	if err != nil {
		return err
	}
	total := int64(len(b.Content))
	for offset := int64(0); ; {
		end := min(offset+chunkSize, total)
		request := &contentapi.WriteContentRequest{
			Action: contentapi.WriteAction_WRITE, Ref: "clusterctl-" + b.Digest,
			Total: total, Expected: b.Digest, Offset: offset, Data: b.Content[offset:end],
		}
		if end == total {
			request.Action, request.Labels = contentapi.WriteAction_COMMIT, b.Labels
		}
		if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		_, err := stream.Recv()
		if status.Code(err) == codes.AlreadyExists {
			// The content exists already, perhaps without these labels.
			if len(b.Labels) == 0 {
				return nil
			}
			_, err := c.Update(ctx,
				&contentapi.UpdateRequest{Info: &contentapi.Info{Digest: b.Digest, Labels: b.Labels}})
			return err
		}
		if err != nil {
			return err
		}
		if end == total {
			return nil
		}
		offset = end
	}
}
