package authn

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/api"
)

// These are the default and the limits of a token's lifetime, in seconds.
const (
	defaultExpiration = int64(60 * 60)
	minExpiration     = int64(10 * 60)
	maxExpiration     = int64(1) << 32
)

// Issue answers serviceaccounts/token with a token of the service account, bound to the object that the request names.
func (t *Tokens) Issue(
	_ context.Context,
	_ api.User,
	namespace, name string,
	obj runtime.Object,
) (runtime.Object, error) {
	req, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a token is asked for with a TokenRequest, not with a %T", obj))
	}
	signer := t.keys.current().signer
	if signer == nil {
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "serviceaccounts/token"}, "create")
	}
	kind := schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}
	if req.Name != "" && req.Name != name {
		return nil, api.Invalid(kind, name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), req.Name,
				"must match the service account name if specified")})
	}
	account, found := t.findAccount(namespace, name)
	if !found {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, name)
	}
	if req.UID != "" && req.UID != account.UID {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", req.UID,
				account.UID))
	}
	out := req.DeepCopy()
	if out.Spec.ExpirationSeconds == nil {
		seconds := defaultExpiration
		out.Spec.ExpirationSeconds = &seconds
	}
	if len(out.Spec.Audiences) == 0 {
		out.Spec.Audiences = t.ownAudiences()
	}
	if errs := validateTokenRequest(out); len(errs) > 0 {
		return nil, api.Invalid(kind, "", errs)
	}
	k := kubernetesClaims{
		Namespace:      namespace,
		ServiceAccount: objectReference{Name: name, UID: string(account.UID)},
	}
	if err := t.bind(&k, out.Spec.BoundObjectRef); err != nil {
		return nil, err
	}
	now := t.now()
	expires := now.Add(time.Duration(*out.Spec.ExpirationSeconds) * time.Second)
	token, err := jwt.Signed(signer).Claims(jwt.Claims{
		ID: string(uuid.NewUUID()), Issuer: t.issuer, Subject: accountName(namespace, name),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(expires),
	}).Claims(privateClaims{k}).Claims(audienceClaim{out.Spec.Audiences}).Serialize()
	if err != nil {
		return nil, fmt.Errorf("sign a token for service account %s/%s: %w", namespace, name, err)
	}
	out.Name, out.Namespace, out.UID = name, namespace, account.UID
	out.CreationTimestamp = metav1.Time{Time: now}
	out.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.Time{Time: expires}}
	return out, nil
}

// audienceClaim encodes the audiences as a list even if there is only one, because readers of such tokens expect that.
type audienceClaim struct {
	Audience []string `json:"aud"`
}

func (t *Tokens) findAccount(namespace, name string) (*corev1.ServiceAccount, bool) {
	obj, found := t.objects.Get(schema.GroupResource{Resource: "serviceaccounts"}, namespace, name)
	account, ok := obj.(*corev1.ServiceAccount)
	return account, found && ok
}

func validateTokenRequest(r *authenticationv1.TokenRequest) field.ErrorList {
	path := field.NewPath("spec", "expirationSeconds")
	switch seconds := *r.Spec.ExpirationSeconds; {
	case seconds < minExpiration:
		return field.ErrorList{field.Invalid(path, seconds, "may not specify a duration less than 10 minutes")}
	case seconds > maxExpiration:
		return field.ErrorList{field.Invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")}
	}
	return nil
}

// bind checks the object that a token is bound to, and adds it to the claims.
func (t *Tokens) bind(k *kubernetesClaims, to *authenticationv1.BoundObjectReference) error {
	if to == nil {
		return nil
	}
	resource := map[string]string{"Pod": "pods", "Secret": "secrets", "Node": "nodes"}[to.Kind]
	if resource == "" || to.APIVersion != "v1" && to.APIVersion != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s",
			schema.FromAPIVersionAndKind(to.APIVersion, to.Kind).String()))
	}
	namespace := k.Namespace
	if to.Kind == "Node" {
		namespace = ""
	}
	gr := schema.GroupResource{Resource: resource}
	obj, ok := t.objects.Get(gr, namespace, to.Name)
	if !ok {
		return apierrors.NewNotFound(gr, to.Name)
	}
	var bound objectReference
	switch o := obj.(type) {
	case *corev1.Pod:
		if o.Spec.ServiceAccountName != k.ServiceAccount.Name {
			return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with "+
				"different serviceaccount name.", k.ServiceAccount.Name))
		}
		bound = objectReference{Name: o.Name, UID: string(o.UID)}
		k.Pod = &bound
		if o.Spec.NodeName != "" {
			k.Node = &objectReference{Name: o.Spec.NodeName}
			if node, ok := t.objects.Get(schema.GroupResource{Resource: "nodes"}, "", o.Spec.NodeName); ok {
				k.Node.UID = string(node.(*corev1.Node).UID)
			}
		}
	case *corev1.Secret:
		bound = objectReference{Name: o.Name, UID: string(o.UID)}
		k.Secret = &bound
	case *corev1.Node:
		bound = objectReference{Name: o.Name, UID: string(o.UID)}
		k.Node = &bound
	}
	if to.UID != "" && string(to.UID) != bound.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: to.Kind}, to.Name, fmt.Errorf(
			"the UID in the bound object reference (%s) does not match the UID in record. The object might have been "+
				"deleted and then recreated", to.UID))
	}
	return nil
}

// ServeHTTP answers /.well-known/openid-configuration and /openid/v1/jwks, with which other systems verify the tokens.
func (t *Tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var v any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		algorithms := []string{}
		for _, k := range t.keys.current().verifying {
			algorithms = append(algorithms, k.Algorithm)
		}
		w.Header().Set("Content-Type", "application/json")
		v = map[string]any{
			"issuer": t.issuer, "jwks_uri": strings.TrimSuffix(t.issuer, "/") + "/openid/v1/jwks",
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": algorithms,
		}
	case "/openid/v1/jwks":
		w.Header().Set("Content-Type", "application/jwk-set+json")
		v = jose.JSONWebKeySet{Keys: t.keys.current().verifying}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=3600")
	// The client may have left.
	_ = json.NewEncoder(w).Encode(v)
}
