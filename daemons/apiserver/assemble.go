package apiserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/admission"
	"clusterctl/daemons/apiserver/audit"
	"clusterctl/daemons/apiserver/authn"
	"clusterctl/daemons/apiserver/authz"
	"clusterctl/daemons/apiserver/review"
	"clusterctl/daemons/apiserver/upkeep"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/config"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store"
)

// Assemble builds a server as cfg describes, with its authentication, authorization, admission and default objects.
func Assemble(cfg config.APIServer, s store.Store, env run.Env) (*Server, error) {
	if cfg.ServiceAccountExtendTokenExpiration {
		return nil, errors.New("--service-account-extend-token-expiration=true is not carried out: tokens of pods " +
			"live for as long as they say, and kubelets renew them in time")
	}
	a := &assembly{cfg: cfg, env: env, store: s}
	for _, add := range []func() error{
		a.addKubelets, a.addStorage, a.addDefaults, a.addUsers, a.addAdmission, a.addAudit, a.addFlow,
	} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	server, err := New(a.options)
	if err != nil {
		return nil, err
	}
	return server, a.watchFiles()
}

// assembly is a server's options while they are assembled from a configuration.
type assembly struct {
	cfg     config.APIServer
	env     run.Env
	store   store.Store
	options Options

	pluginsReady run.Check // whether KMS plugins answer; nil without them
	files        []configurationFile
}

// configurationFile is a configuration file that is read again when it changes.
type configurationFile struct {
	name string
	file reloadableFile
}

// reloadableFile is the content of a configuration file.
type reloadableFile interface {
	Reload() error
	Run(ctx context.Context) error
	RegisterMetrics(prefix string, to prometheus.Registerer) error
}

// addFile makes the server read a configuration file again when it changes.
func (a *assembly) addFile(name string, file reloadableFile) {
	a.files = append(a.files, configurationFile{name, file})
	a.addTask(func(ctx context.Context, _ *Server) error { return file.Run(ctx) })
}

func (a *assembly) addTask(task func(ctx context.Context, s *Server) error) {
	a.options.Tasks = append(a.options.Tasks, task)
}

// watchFiles registers the health checks and metrics of the configuration files. /readyz/NAME-config fails if the file
// on disk cannot be loaded.
func (a *assembly) watchFiles() error {
	if a.pluginsReady != nil {
		a.env.Health.AddReady("kms-providers", a.pluginsReady)
	}
	var failed []error
	for _, f := range a.files {
		a.env.Health.AddInformational(f.name+"-config", f.file.Reload)
		prefix := "apiserver_" + strings.ReplaceAll(f.name, "-", "_") + "_config_controller"
		failed = append(failed, f.file.RegisterMetrics(prefix, a.env.Metrics))
	}
	return errors.Join(failed...)
}

// addKubelets sets how the server connects to kubelets.
func (a *assembly) addKubelets() (err error) {
	a.options.Peers.KubeletTLS, a.options.Peers.KubeletRoots, err = kubeletTLS(a.cfg)
	return err
}

// addStorage opens the storage, with the encryption that is configured.
func (a *assembly) addStorage() error {
	s, pluginsReady, tasks, err := withEncryption(a.cfg, a.store, a.env)
	if err != nil {
		return err
	}
	a.options.Storage = OpenStorage(s, a.cfg.EtcdPrefix, kinds.All(), a.env.Log)
	a.pluginsReady, a.options.Tasks = pluginsReady, tasks
	return nil
}

// addDefaults sets the plain values of the configuration, and the objects that every cluster has.
func (a *assembly) addDefaults() error {
	front, trusted, err := frontProxyCertificate(a.cfg)
	if err != nil {
		return err
	}
	o, cfg := &a.options, a.cfg
	o.Env = a.env
	o.Addresses = Addresses{
		ServiceClusterIPRange: cfg.ServiceClusterIPRange, ServiceNodePortRange: cfg.ServiceNodePortRange,
		AdvertiseAddress: advertisedAddress(cfg), AdvertisePort: cfg.SecurePort,
	}
	o.Limits = Limits{RequestTimeout: cfg.RequestTimeout, EventTTL: cfg.EventTTL}
	o.Profiling = cfg.Profiling
	o.Peers.FrontProxy, o.Peers.ClusterCA = front, func() []byte { return readCA(cfg.KubeletCertificateAuthority) }
	o.Bootstrap = slices.Concat(authz.Defaults(), admission.SystemPriorityClasses(), flowObjects(cfg), trusted,
		upkeep.TokenTrackingConfigMaps(time.Now()))
	if len(trusted) > 0 {
		a.addTask(func(ctx context.Context, s *Server) error {
			return s.background.upkeep.SyncTrustConfigMaps(ctx, cfg, trusted)
		})
	}
	return nil
}

// addUsers sets authentication and authorization, and the reviews and tokens that depend on them.
func (a *assembly) addUsers() error {
	o, objects := &a.options, a.options.Storage.Objects()
	authenticator, err := authn.New(a.cfg, objects, nil, a.env.Log)
	if err != nil {
		return err
	}
	if authenticator.File != nil {
		a.addFile("authentication", authenticator.File)
	}
	if authenticator.Webhook != nil {
		a.addFile("token-webhook", authenticator.Webhook)
	}
	authorizer, rules, err := authorizers(a.cfg, objects, a.env)
	if err != nil {
		return err
	}
	if rules != nil {
		a.addFile("authorization", rules)
	}
	o.Access = Access{
		Authenticators: []api.Authenticator{authenticator}, UntilRevoked: authenticator.UntilRevoked,
		Anonymous:   authenticator.Anonymous,
		Authorizers: []api.Authorizer{authorizer}, Reviews: map[schema.GroupResource]write.Review{},
	}
	o.Admission.External = &write.External{Authorizer: authorizer}
	for gr, handle := range review.All(authorizer, authz.NewRBAC(objects), authenticator) {
		o.Access.Reviews[gr] = handle
	}
	tokens := authenticator.Tokens()
	if tokens == nil {
		return nil
	}
	o.Access.Token, o.Access.TokenKeys = admission.GuardTokens(objects, authorizer, tokens.Issue), tokens
	a.addTask(func(ctx context.Context, s *Server) error {
		return tokens.RecordUses(ctx, s.background.upkeep.LabelSecret, a.env.Log)
	})
	return tokens.RegisterMetrics(a.env.Metrics)
}

// authorizers returns the authorizers that cfg selects, by a configuration file or by their modes.
func authorizers(cfg config.APIServer, objects api.Objects, env run.Env) (api.Authorizer, reloadableFile, error) {
	if cfg.AuthorizationConfig != "" {
		c, err := authz.OpenConfigured(cfg.AuthorizationConfig, objects, nil, env.Log)
		return c, c, err
	}
	authorizer, err := authz.New(cfg.AuthorizationMode, objects)
	return authorizer, nil, err
}

// addAdmission sets the built-in admission plugins.
func (a *assembly) addAdmission() (err error) {
	o, objects := &a.options.Admission, a.options.Storage.Objects()
	o.Mutators, o.Validators, err = admission.All(a.cfg, objects, o.External.Authorizer, a.env.Metrics)
	o.Quota = admission.NewQuota(objects)
	return err
}

// addAudit sets the audit log.
func (a *assembly) addAudit() (err error) {
	if a.options.Auditor, err = audit.New(a.cfg, a.env); err != nil {
		return err
	}
	if auditor := a.options.Auditor; auditor != nil && auditor.Webhook != nil {
		a.addFile("audit-webhook", auditor.Webhook)
	}
	return nil
}

// addFlow sets priority and fairness.
func (a *assembly) addFlow() error {
	share, err := newFlow(a.cfg, a.options.Storage.Objects(), a.env)
	if err != nil || share == nil {
		return err
	}
	a.options.Limits.Flow = share
	a.addTask(func(ctx context.Context, _ *Server) error { return share.Run(ctx) })
	a.addTask(func(ctx context.Context, s *Server) error {
		return s.background.upkeep.MaintainFlowObjects(ctx, flowObjects(a.cfg))
	})
	return nil
}
