// Prints, as a JSON list, what kustomize makes of each directory that is named: built by kustomize's own code, and
// each object read into the type that Kubernetes or the Prometheus Operator has for it. Fields that the type does not
// have and values of another type are errors; keys that come twice are kustomize's.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	strict "sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// By apiVersion and kind.
var types = map[string]func() any{
	"apps/v1 DaemonSet":                   func() any { return new(apps.DaemonSet) },
	"apps/v1 Deployment":                  func() any { return new(apps.Deployment) },
	"apps/v1 StatefulSet":                 func() any { return new(apps.StatefulSet) },
	"monitoring.coreos.com/v1 PodMonitor": func() any { return new(monitoring.PodMonitor) },
	"networking.k8s.io/v1 NetworkPolicy":  func() any { return new(networking.NetworkPolicy) },
	"policy/v1 PodDisruptionBudget":       func() any { return new(policy.PodDisruptionBudget) },
	"v1 ConfigMap":                        func() any { return new(core.ConfigMap) },
	"v1 Service":                          func() any { return new(core.Service) },
}

func main() {
	objects := []any{}
	for _, directory := range os.Args[1:] {
		built, err := build(directory)
		if err != nil {
			fmt.Fprintf(os.Stderr, "kubernetes-check: %s: %v\n", directory, err)
			os.Exit(1)
		}
		objects = append(objects, built...)
	}
	if err := json.NewEncoder(os.Stdout).Encode(objects); err != nil {
		fmt.Fprintf(os.Stderr, "kubernetes-check: %v\n", err)
		os.Exit(1)
	}
}

func build(directory string) ([]any, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return nil, err
	}
	var objects []any
	for _, resource := range resources.Resources() {
		name := resource.GetApiVersion() + " " + resource.GetKind()
		typed, known := types[name]
		if !known {
			return nil, fmt.Errorf("%s %s: no type of this kind is known", name, resource.GetName())
		}
		text, err := resource.MarshalJSON()
		if err != nil {
			return nil, err
		}
		object := typed()
		// As Kubernetes' API server does: names of fields in the wrong case are unknown, too.
		unknown, err := strict.UnmarshalStrict(text, object)
		if err := errors.Join(append(unknown, err)...); err != nil {
			return nil, fmt.Errorf("%s %s: %w", name, resource.GetName(), err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
