package auth

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
)

// maxTrustBundle is the maximum size of a bundle in bytes.
const maxTrustBundle = 1 << 20

func ClusterTrustBundles() *kind.Kind {
	return &kind.Kind{
		GVK:      certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"),
		Resource: "clustertrustbundles", Singular: "clustertrustbundle", ConditionalUpdate: true,
		New: kind.New[certificatesv1.ClusterTrustBundle](), NewList: kind.New[certificatesv1.ClusterTrustBundleList](),
		// A signer's bundles are named after it, with slashes replaced by colons.
		NameErrors: podspec.TrustBundleNameErrors,
		Validate:   kind.AdaptValidate(validateTrustBundle),
		ValidateUpdate: kind.AdaptValidateUpdate(func(b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
			errs := validateSignerPrefix(b)
			if b.Spec.TrustBundle != old.Spec.TrustBundle {
				errs = validateTrustBundle(b)
			}
			return append(errs, validate.Immutable(b.Spec.SignerName, old.Spec.SignerName,
				field.NewPath("spec", "signerName"))...)
		}),
		Fields: kind.AdaptFields(func(b *certificatesv1.ClusterTrustBundle) fields.Set {
			return fields.Set{"spec.signerName": b.Spec.SignerName}
		}),
		Columns: kind.NewColumns("SignerName", "Age"),
		Row: kind.AdaptRow(func(b *certificatesv1.ClusterTrustBundle) []any {
			return []any{cell.OrNone(b.Spec.SignerName), cell.Age(b.CreationTimestamp)}
		}),
	}
}

func validateTrustBundle(b *certificatesv1.ClusterTrustBundle) field.ErrorList {
	return append(validateSignerPrefix(b),
		validateTrustAnchors(b.Spec.TrustBundle, field.NewPath("spec", "trustBundle"))...)
}

func validateSignerPrefix(b *certificatesv1.ClusterTrustBundle) field.ErrorList {
	path, name := field.NewPath("metadata", "name"), b.Name
	var errs field.ErrorList
	if signer := b.Spec.SignerName; signer == "" {
		if strings.Contains(name, ":") {
			errs = append(errs, field.Invalid(path, name,
				"ClusterTrustBundle without signer name must not have \":\" in its name"))
		}
	} else {
		errs = append(errs, validate.SignerName(signer, field.NewPath("spec", "signerName"))...)
		if want := strings.ReplaceAll(signer, "/", ":") + ":"; !strings.HasPrefix(name, want) {
			errs = append(errs, field.Invalid(path, name, fmt.Sprintf("ClusterTrustBundle for signerName %s must be "+
				"named with prefix %s", signer, want)))
		}
	}
	return errs
}

// validateTrustAnchors requires CA certificates in PEM without duplicates.
func validateTrustAnchors(text string, path *field.Path) field.ErrorList {
	const omitted = "<value omitted>"
	if len(text) > maxTrustBundle {
		return field.ErrorList{field.TooLong(path, "", maxTrustBundle)}
	}
	var errs field.ErrorList
	seen, n := map[string]int{}, 0
	for rest := []byte(text); ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		switch cert, err := x509.ParseCertificate(block.Bytes); {
		case block.Type != "CERTIFICATE":
			errs = append(errs, field.Invalid(path, omitted, fmt.Sprintf("entry %d has bad block type: %v", n,
				block.Type)))
		case len(block.Headers) > 0:
			errs = append(errs, field.Invalid(path, omitted, fmt.Sprintf("entry %d has PEM block headers", n)))
		case err != nil:
			errs = append(errs, field.Invalid(path, omitted, fmt.Sprintf("entry %d does not parse as X.509", n)))
		case !cert.IsCA:
			errs = append(errs, field.Invalid(path, omitted, fmt.Sprintf("entry %d does not have the CA bit set", n)))
		default:
			if first, twice := seen[string(block.Bytes)]; twice {
				errs = append(errs, field.Invalid(path, omitted,
					fmt.Sprintf("entry %d is a duplicate of entry %d", n, first)))
			}
			seen[string(block.Bytes)] = n
		}
	}
	if n == 0 {
		errs = append(errs, field.Invalid(path, omitted, "at least one trust anchor must be provided"))
	}
	return errs
}
