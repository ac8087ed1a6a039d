package kms

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/uuid"
	kmsapi "k8s.io/kms/apis/v2"
)

// dial prepares a connection to a socket. The first call connects, and later calls reconnect if the connection was
// lost.
func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(
		"passthrough:///kms",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // file permissions control access to the socket
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", address)
		}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxAnswer)),
		// Reconnect quickly, because calls wait for a restarted plugin only until their timeout.
		grpc.WithConnectParams(
			grpc.ConnectParams{
				MinConnectTimeout: time.Second,
				Backoff: backoff.Config{
					BaseDelay:  50 * time.Millisecond,
					Multiplier: 2,
					Jitter:     0.2,
					MaxDelay:   time.Second,
				},
			},
		),
	)
}

// maxAnswer is larger, in bytes, than any response within the limits of the API.
const maxAnswer = 256 << 10

// call calls the plugin, with its timeout. The error is ErrPlugin unless ctx has ended.
func (p *Plugin) call(ctx context.Context, what string, f func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	p.conn.ResetConnectBackoff() // calls are rare, so each is worth an attempt to connect
	err := f(short)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, ctx.Err())
	case short.Err() != nil:
		return fmt.Errorf("%s: %w: no answer within %s", what, ErrPlugin, p.config.Timeout)
	}
	return fmt.Errorf("%s: %w: %s: %s", what, ErrPlugin, status.Code(err), status.Convert(err).Message())
}

func (p *Plugin) decrypt(ctx context.Context, w wrapped) (secret []byte, err error) {
	err = p.call(ctx, "decrypt a key of "+shortID(w.KeyID), func(ctx context.Context) error {
		r, err := p.client.Decrypt(
			ctx,
			&kmsapi.DecryptRequest{
				Uid:         string(uuid.NewUUID()),
				Ciphertext:  w.EncryptedDEKSource,
				KeyId:       w.KeyID,
				Annotations: w.Annotations,
			},
		)
		secret = r.GetPlaintext()
		return err
	})
	return secret, err
}

func (p *Plugin) encrypt(ctx context.Context, secret []byte) (w wrapped, err error) {
	err = p.call(ctx, "encrypt a key", func(ctx context.Context) error {
		r, err := p.client.Encrypt(ctx, &kmsapi.EncryptRequest{Uid: string(uuid.NewUUID()), Plaintext: secret})
		w = wrappedBy(r)
		return err
	})
	return w, err
}

func (p *Plugin) status(ctx context.Context) (r *kmsapi.StatusResponse, err error) {
	err = p.call(ctx, "ask how it is", func(ctx context.Context) (err error) {
		r, err = p.client.Status(ctx, &kmsapi.StatusRequest{})
		return err
	})
	return r, err
}
