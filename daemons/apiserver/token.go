package apiserver

import (
	"context"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/request"
)

// labelSecret sets a label on a Secret, if the Secret exists.
func (s *Server) labelSecret(ctx context.Context, namespace, name, key, value string) error {
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	_, err := s.change(ctx, ownObject{resource: secrets, namespace: namespace, name: name},
		func(live runtime.Object) (runtime.Object, error) {
			stored, ok := live.(*corev1.Secret)
			if !ok {
				return nil, apierrors.NewNotFound(secrets.GroupResource(), name)
			}
			next := stored.DeepCopy()
			if next.Labels == nil {
				next.Labels = map[string]string{}
			}
			next.Labels[key] = value
			return next, nil
		})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// issueToken answers serviceaccounts/token with a token of the service account.
func (s *Server) issueToken(q *request.Request) error {
	if err := q.WriteOptions(); err != nil {
		return err
	}
	kind := authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
	t := &authenticationv1.TokenRequest{}
	if err := body.Decode(q, kind, t); err != nil {
		return err
	}
	if err := setNamespace(q, t); err != nil {
		return err
	}
	if _, err := s.reads.WaitForVersion(q.HTTP.Context(), ""); err != nil {
		return err
	}
	if err := s.admitSubresource(q, "CREATE", kind, t, false); err != nil {
		return err
	}
	answer, err := s.options.Token(q.HTTP.Context(), q.User, q.Namespace, q.Name, t)
	if err != nil {
		return err
	}
	return q.Media.WriteObject(q.Answer, http.StatusCreated, kind, answer)
}
