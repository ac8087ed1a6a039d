// Package extend serves the kinds that CustomResourceDefinitions declare.
package extend

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/ownership"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/kinds"
)

// Server is what definitions need from the API server.
type Server interface {
	// ServeKinds serves declared kinds, besides the built-in kinds.
	ServeKinds(declared []*kinds.Kind)
	// CheckStore returns nil if the store answered when it was last checked.
	CheckStore() error
}

// Writer makes the server's own writes.
type Writer interface {
	// Change changes an object. next returns the new object for the stored one, which is nil if there is none.
	Change(ctx context.Context, o write.Own, next func(live runtime.Object) (runtime.Object, error)) (
		*cache.Entry, error)
	// Remove deletes an object of a kind that clients may not see. isGone reports whether nothing delays its removal.
	Remove(ctx context.Context, served wire.Served, namespace, name string, o *metav1.DeleteOptions) (
		isGone bool, err error)
}

// Config configures Definitions.
type Config struct {
	Cache    *cache.Cache
	Writes   Writer
	Owners   *ownership.Managers
	Backends *backend.Connector // to conversion webhooks
	BuiltIn  []*kinds.Kind
	Now      func() time.Time
	Log      *slog.Logger
}

// Definitions are the CustomResourceDefinitions of a cluster.
type Definitions struct {
	config    Config
	server    Server
	served    definitionProgress
	processed definitionProgress // like served, but includes definitions that could not be served
	isReady   atomic.Bool        // whether custom resources have been served once
}

// New returns the definitions that the server s serves.
func New(c Config, s Server) *Definitions { return &Definitions{config: c, server: s} }
