#!/bin/bash
# Makes what the services need, with the least roles. Safe to repeat. Usage: PROJECT=… LOCATION=… .deploy/setup.sh
set -euo pipefail
: "${PROJECT:?the project}" "${LOCATION:?the region}"
SERVICE="${SERVICE:-jobs-push}"

exists() { "$@" >/dev/null 2>&1; }
account() { echo "$1@$PROJECT.iam.gserviceaccount.com"; }
gcloud config set project "$PROJECT" --quiet

for name in jobs-run jobs-project jobs-push; do
    exists gcloud iam service-accounts describe "$(account "$name")" || gcloud iam service-accounts create "$name"
done

bucket="gs://$PROJECT-jobs"
exists gcloud storage buckets describe "$bucket" ||
    gcloud storage buckets create "$bucket" --location="$LOCATION" --uniform-bucket-level-access --soft-delete-duration=0
exists gcloud pubsub topics describe jobs || gcloud pubsub topics create jobs
exists gcloud pubsub subscriptions describe jobs-projector ||
    gcloud pubsub subscriptions create jobs-projector --topic=jobs --ack-deadline=60 --expiration-period=never
exists gcloud tasks queues describe jobs --location="$LOCATION" ||
    gcloud tasks queues create jobs --location="$LOCATION" --max-attempts=-1 --min-backoff=1s --max-backoff=300s

for name in jobs-run jobs-project; do
    gcloud storage buckets add-iam-policy-binding "$bucket" \
        --member="serviceAccount:$(account "$name")" --role=roles/storage.objectUser
    gcloud pubsub topics add-iam-policy-binding jobs \
        --member="serviceAccount:$(account "$name")" --role=roles/pubsub.publisher
done
gcloud pubsub subscriptions add-iam-policy-binding jobs-projector \
    --member="serviceAccount:$(account jobs-project)" --role=roles/pubsub.subscriber
gcloud tasks queues add-iam-policy-binding jobs --location="$LOCATION" \
    --member="serviceAccount:$(account jobs-run)" --role=roles/cloudtasks.enqueuer
gcloud iam service-accounts add-iam-policy-binding "$(account jobs-push)" \
    --member="serviceAccount:$(account jobs-run)" --role=roles/iam.serviceAccountUser

if exists gcloud run services describe "$SERVICE" --region="$LOCATION"; then
    gcloud run services add-iam-policy-binding "$SERVICE" --region="$LOCATION" \
        --member="serviceAccount:$(account jobs-push)" --role=roles/run.invoker
    address=$(gcloud run services describe "$SERVICE" --region="$LOCATION" --format='value(status.url)')
    exists gcloud scheduler jobs describe jobs-sweep --location="$LOCATION" ||
        gcloud scheduler jobs create http jobs-sweep --location="$LOCATION" --schedule='* * * * *' \
            --uri="$address/sweep" --http-method=POST \
            --oidc-service-account-email="$(account jobs-push)" --oidc-token-audience="$address"
else
    echo "deploy the service, then run this again: it lets Cloud Tasks call it, and makes the schedule" >&2
fi
