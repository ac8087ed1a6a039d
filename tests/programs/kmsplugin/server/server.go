// Package server is a KMS plugin for tests. It implements version 2 of the KMS plugin API over a unix socket, with keys
// that it derives from a secret and their names. It can be made to fail, and it counts calls. It is no example of how
// to run a real plugin.
package server

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// Server is the plugin.
type Server struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	Secret string
	Key    func() string // returns the ID of the key for encryption

	mu      sync.Mutex
	failure error
	health  string
	counts  map[string]int
}

// Serve serves at a socket until ctx ends.
func (s *Server) Serve(ctx context.Context, socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", socket, err)
	}
	g := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(g, s)
	stopped := make(chan struct{})
	over := context.AfterFunc(ctx, func() { defer close(stopped); g.Stop() })
	if err := g.Serve(listener); err != nil && over() {
		return err
	}
	<-stopped
	return nil
}

// Fail makes all calls but Status return err, and Status report it as its health. A nil error ends this.
func (s *Server) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

// SetHealth makes Status report another health than ok.
func (s *Server) SetHealth(health string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health = health
}

// Count returns how often a method was called: Status, Encrypt or Decrypt.
func (s *Server) Count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[call]
}

func (s *Server) recordCall(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.counts[call]++
	return s.failure
}

// Status implements the API.
func (s *Server) Status(context.Context, *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	health := "ok"
	if err := s.recordCall("Status"); err != nil {
		health = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.health != "" {
		health = s.health
	}
	return &kmsapi.StatusResponse{Version: "v2", Healthz: health, KeyId: s.Key()}, nil
}

// annotationName is the name of the annotation that the plugin adds on encryption and requires on decryption.
const annotationName = "made-by.kmsplugin.example.com"

// Encrypt implements the API.
func (s *Server) Encrypt(_ context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	if err := s.recordCall("Encrypt"); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	id := s.Key()
	aead, err := s.aead(id)
	if err != nil {
		return nil, err
	}
	return &kmsapi.EncryptResponse{
		Ciphertext:  aead.Seal(nil, nil, r.Plaintext, []byte(id)),
		KeyId:       id,
		Annotations: map[string][]byte{annotationName: []byte(id)},
	}, nil
}

// Decrypt implements the API.
func (s *Server) Decrypt(_ context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	if err := s.recordCall("Decrypt"); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if string(r.Annotations[annotationName]) != r.KeyId || r.Uid == "" {
		return nil, status.Errorf(codes.InvalidArgument,
			"the annotations are not those that were given, or the call has no uid: %v", r)
	}
	aead, err := s.aead(r.KeyId)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, r.Ciphertext, []byte(r.KeyId))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "it was not encrypted with key %q of this plugin", r.KeyId)
	}
	return &kmsapi.DecryptResponse{Plaintext: plain}, nil
}

func (s *Server) aead(id string) (cipher.AEAD, error) {
	key := sha256.Sum256([]byte(s.Secret + "/" + id))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
