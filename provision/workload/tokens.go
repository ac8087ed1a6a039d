package workload

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Token is a bootstrap token, with which a new machine requests its node's certificate.
type Token struct {
	ID          string    `json:"id"`
	Secret      string    `json:"-"`
	Description string    `json:"description,omitempty"`
	Groups      []string  `json:"groups,omitempty"` // in addition to system:bootstrappers
	Expires     time.Time `json:"expires,omitzero"` // zero means never
}

// String returns the token, which is a secret.
func (t Token) String() string { return t.ID + "." + t.Secret }

// NodeTokens is the group of kubeadm's join tokens. Its members may request node certificates, which are approved
// automatically.
const NodeTokens = "system:bootstrappers:kubeadm:default-node-token"

const tokenPrefix = "bootstrap-token-"

var (
	secretsGVR  = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	bindingsGVR = schema.GroupVersionResource{
		Group:    "rbac.authorization.k8s.io",
		Version:  "v1",
		Resource: "clusterrolebindings",
	}
)

// joinBindings are the bindings that allow nodes to join with tokens, with kubeadm's names. They are created with the
// first token, so that a cluster without tokens grants nothing.
var joinBindings = []struct{ name, role, group string }{
	{"kubeadm:kubelet-bootstrap", "system:node-bootstrapper", NodeTokens},
	{
		"kubeadm:node-autoapprove-bootstrap",
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient",
		NodeTokens,
	},
	{
		"kubeadm:node-autoapprove-certificate-rotation",
		"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
		"system:nodes",
	},
}

// CreateToken creates the token, and the bindings that it needs.
func (l tokenClient) CreateToken(ctx context.Context, t Token) error {
	for _, j := range joinBindings {
		binding := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
			"metadata": map[string]any{"name": j.name},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": j.role},
			"subjects": []any{
				map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": j.group},
			},
		}}
		if _, err := l.dynamic.Resource(bindingsGVR).Create(ctx, binding,
			metav1.CreateOptions{FieldManager: Manager}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("let nodes join by tokens: %w", err)
		}
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tokenPrefix + t.ID},
		Type:       corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte(t.ID), "token-secret": []byte(t.Secret),
			"usage-bootstrap-authentication": []byte("true"), "usage-bootstrap-signing": []byte("true"),
		},
	}
	for key, value := range map[string]string{"description": t.Description,
		"auth-extra-groups": strings.Join(t.Groups, ",")} {
		if value != "" {
			secret.Data[key] = []byte(value)
		}
	}
	if !t.Expires.IsZero() {
		secret.Data["expiration"] = []byte(t.Expires.UTC().Format(time.RFC3339))
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	if err != nil {
		return err
	}
	_, err = l.dynamic.Resource(secretsGVR).
		Namespace(metav1.NamespaceSystem).
		Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldManager: Manager})
	if err != nil {
		return fmt.Errorf("create the token %s: %w", t.ID, err)
	}
	return nil
}

// Tokens returns all tokens, including expired ones.
func (l tokenClient) Tokens(ctx context.Context) (list []Token, err error) {
	found, err := l.dynamic.Resource(secretsGVR).
		Namespace(metav1.NamespaceSystem).
		List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	if err != nil {
		return nil, fmt.Errorf("list the tokens: %w", err)
	}
	for _, item := range found.Items {
		var secret corev1.Secret
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &secret); err != nil {
			return nil, fmt.Errorf("read the token %s: %w", item.GetName(), err)
		}
		t := Token{
			ID:          string(secret.Data["token-id"]),
			Secret:      string(secret.Data["token-secret"]),
			Description: string(secret.Data["description"]),
		}
		for _, g := range strings.Split(string(secret.Data["auth-extra-groups"]), ",") {
			if g = strings.TrimSpace(g); g != "" {
				t.Groups = append(t.Groups, g)
			}
		}
		if text := string(secret.Data["expiration"]); text != "" {
			if t.Expires, err = time.Parse(time.RFC3339, text); err != nil {
				return nil, fmt.Errorf("read when the token %s expires: %w", t.ID, err)
			}
		}
		list = append(list, t)
	}
	return list, nil
}

// DeleteToken deletes a token.
func (l tokenClient) DeleteToken(ctx context.Context, id string) error {
	if err := l.dynamic.Resource(secretsGVR).Namespace(metav1.NamespaceSystem).Delete(ctx, tokenPrefix+id,
		metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the token %s: %w", id, err)
	}
	return nil
}
