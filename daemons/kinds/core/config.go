package core

import (
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/warn"
)

func ConfigMaps() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Resource: "configmaps", Singular: "configmap", ShortNames: []string{"cm"}, Namespaced: true,
		New: kind.New[corev1.ConfigMap](), NewList: kind.New[corev1.ConfigMapList](),
		Validate:       kind.AdaptValidate(validateConfigMap),
		ValidateUpdate: kind.AdaptValidateUpdate(validateConfigMapUpdate),
		Columns:        kind.NewColumns("Data", "Age"),
		Row: kind.AdaptRow(func(c *corev1.ConfigMap) []any {
			return []any{strconv.Itoa(len(c.Data) + len(c.BinaryData)), cell.Age(c.CreationTimestamp)}
		}),
	}
}

func validateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for key, v := range c.Data {
		at := field.NewPath("data").Key(key)
		errs = append(errs, validate.Invalid(at, key, validation.IsConfigMapKey(key))...)
		if _, ok := c.BinaryData[key]; ok {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(v)
	}
	for key, v := range c.BinaryData {
		errs = append(errs, validate.Invalid(field.NewPath("binaryData").Key(key), key,
			validation.IsConfigMapKey(key))...)
		size += len(v)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	errs := validateConfigMap(c)
	if !value.OrZero(old.Immutable) {
		return errs
	}
	const text = "field is immutable when `immutable` is set"
	if !value.OrZero(c.Immutable) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), text))
	}
	if len(validate.Immutable(c.Data, old.Data, nil)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("data"), text))
	}
	if len(validate.Immutable(c.BinaryData, old.BinaryData, nil)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("binaryData"), text))
	}
	return errs
}

func Secrets() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("Secret"),
		Resource: "secrets", Singular: "secret", Namespaced: true,
		New: kind.New[corev1.Secret](), NewList: kind.New[corev1.SecretList](),
		Default: kind.Adapt(func(s *corev1.Secret) {
			value.SetEmpty(&s.Type, corev1.SecretTypeOpaque)
			for key, text := range s.StringData {
				if s.Data == nil {
					s.Data = map[string][]byte{}
				}
				s.Data[key] = []byte(text)
			}
			s.StringData = nil
		}),
		Validate: kind.AdaptValidate(validateSecret), ValidateUpdate: kind.AdaptValidateUpdate(validateSecretUpdate),
		Fields:  kind.AdaptFields(func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} }),
		Columns: kind.NewColumns("Type", "Data", "Age"),
		Row: kind.AdaptRow(func(s *corev1.Secret) []any {
			return []any{string(s.Type), strconv.Itoa(len(s.Data)), cell.Age(s.CreationTimestamp)}
		}),
	}
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data, size := field.NewPath("data"), 0
	for key, v := range s.Data {
		errs = append(errs, validate.Invalid(data.Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(v)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	require := func(keys ...string) {
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
	}
	requireJSON := func(key string) {
		require(key)
		if text, ok := s.Data[key]; ok {
			if err := json.Unmarshal(text, &map[string]any{}); err != nil {
				errs = append(errs, field.Invalid(data.Key(key), "<secret contents redacted>", err.Error()))
			}
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs,
				field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		requireJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		requireJSON(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			require(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			errs = append(errs, field.Required(data.Key(corev1.SSHAuthPrivateKey), ""))
		}
	case corev1.SecretTypeTLS:
		require(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return errs
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := append(validateSecret(s), validate.Immutable(s.Type, old.Type, field.NewPath("type"))...)
	if !value.OrZero(old.Immutable) {
		return errs
	}
	const text = "field is immutable when `immutable` is set"
	if !value.OrZero(s.Immutable) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), text))
	}
	if len(validate.Immutable(s.Data, old.Data, nil)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("data"), text))
	}
	return errs
}

// trimSecretReferences reduces references to Secrets to their names, because they are in the account's namespace.
func trimSecretReferences(s *corev1.ServiceAccount) {
	for i, ref := range s.Secrets {
		s.Secrets[i] = corev1.ObjectReference{Name: ref.Name}
	}
}

func ServiceAccounts() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
		Resource: "serviceaccounts", Singular: "serviceaccount", ShortNames: []string{"sa"}, Namespaced: true,
		New: kind.New[corev1.ServiceAccount](), NewList: kind.New[corev1.ServiceAccountList](),
		Warnings:      kind.AdaptWarnings(serviceAccountWarnings),
		PrepareCreate: kind.Adapt(trimSecretReferences),
		PrepareUpdate: kind.AdaptUpdate(func(s, _ *corev1.ServiceAccount) { trimSecretReferences(s) }),
		Columns:       kind.NewColumns("Secrets", "Age"),
		Row: kind.AdaptRow(func(s *corev1.ServiceAccount) []any {
			return []any{strconv.Itoa(len(s.Secrets)), cell.Age(s.CreationTimestamp)}
		}),
		Subresources: []string{"token"},
	}
}

func serviceAccountWarnings(s, old *corev1.ServiceAccount) []string {
	var d warn.List
	if _, ok := s.Annotations[enforceMountable]; !ok {
		return nil
	}
	if old != nil {
		if _, before := old.Annotations[enforceMountable]; before {
			return nil
		}
	}
	d.Addf(field.NewPath("metadata", "annotations").Key(enforceMountable),
		"deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets")
	return d
}

const enforceMountable = "kubernetes.io/enforce-mountable-secrets"
